//! What an error of the client or the server means for the command that met it.

use redis::{ErrorKind, RedisError, ServerErrorKind};

use super::permissions;
use crate::store::{StoreError, StoreErrorKind};

/// Why a command gave no value.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The server has no such script; nothing was executed.
    NoScript,
    /// Anything else.
    Failed(StoreError),
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

impl From<RedisError> for Refusal {
    fn from(error: RedisError) -> Self {
        match error.kind() {
            ErrorKind::Server(ServerErrorKind::NoScript) => Self::NoScript,
            _ => Self::Failed(classify(&error)),
        }
    }
}

/// After these errors the connection is of no further use. `READONLY` is one of them: the server was demoted, and only
/// a new look-up of its name finds the new primary; `UNBLOCKED` says the same to who waits for replicas. So are those of a login that does not count any more: a new
/// connection asks for the login anew.
pub(super) fn closes_connection(error: &RedisError) -> bool {
    match error.kind() {
        ErrorKind::Io | ErrorKind::Parse | ErrorKind::Client => true,
        ErrorKind::Server(_) | ErrorKind::Extension => {
            matches!(code_of(error), Some("READONLY" | "UNBLOCKED" | "NOAUTH" | "WRONGPASS"))
        }
        _ => error.is_unrecoverable_error(),
    }
}

/// Whether it is the login that is refused.
pub(super) fn refuses_login(error: &RedisError) -> bool {
    error.kind() == ErrorKind::AuthenticationFailed || matches!(code_of(error), Some("NOAUTH" | "WRONGPASS"))
}

/// What an error means for the command that met it. Old servers wrap an error raised inside a script in a plain `ERR`,
/// so the text is searched for the code as well.
pub(super) fn classify(error: &RedisError) -> StoreError {
    use StoreErrorKind::{Config, Permission, Unavailable};
    let Some(code) = code_of(error) else {
        return if refuses_login(error) {
            StoreError::new(Permission, LOGIN_REFUSED)
        } else {
            StoreError::unanswered(error.to_string())
        };
    };
    let detail = error.detail().unwrap_or_default();
    let meaning = match code {
        "NOPERM" => StoreError::new(
            Permission,
            format!(
                "{detail}; allow the locking commands ({}) on the keys of the namespace, or ask `LockManager::doctor` what is missing",
                permissions::commands()
            ),
        ),
        "NOAUTH" | "WRONGPASS" => StoreError::new(Permission, LOGIN_REFUSED),
        "OOM" => StoreError::new(Unavailable, "the server is out of memory (OOM); free some, or raise `maxmemory`"),
        "READONLY" => StoreError::new(
            Unavailable,
            "the server is a read-only replica (READONLY); the connection is made anew to find the primary",
        ),
        "NOREPLICAS" => StoreError::new(
            Unavailable,
            "the server has fewer replicas than its `min-replicas-to-write` and refuses writes (NOREPLICAS); connect them, or lower it",
        ),
        "UNBLOCKED" => StoreError::new(
            Unavailable,
            "the server was demoted (UNBLOCKED); the connection is made anew to find the primary",
        ),
        "BUSY" | "LOADING" | "MASTERDOWN" | "TRYAGAIN" | "CLUSTERDOWN" | "MISCONF" => {
            StoreError::new(Unavailable, format!("the server answered {code} {detail}"))
        }
        "MOVED" | "ASK" | "CROSSSLOT" => StoreError::new(
            Config,
            format!("the server is a node of a Redis Cluster (it answered {code}); write `redis+cluster://host:port`"),
        ),
        "ERR" if detail.starts_with("unknown command") => StoreError::new(
            Config,
            format!(
                "the server answered {code} {}; if the port is that of a Sentinel, write `redis+sentinel://host:port/name`, else use a Redis or Valkey server that has not renamed its commands",
                detail.split(", with args").next().unwrap_or_default()
            ),
        ),
        _ => StoreError::new(Config, format!("the server answered {code} {detail}")),
    };
    #[cfg(feature = "cluster")]
    let meaning = StoreError { detour: super::cluster::Detour::read(code, detail).map(Box::new), ..meaning };
    meaning
}

/// Where it is not known how the login was given.
const LOGIN_REFUSED: &str = "the login: user or password is wrong or missing; write `redis://user:password@host` or `redis://:password@host`, or see to the provider of `Builder::credentials`";

const CODES: [&str; 13] = [
    "NOPERM",
    "NOAUTH",
    "WRONGPASS",
    "OOM",
    "READONLY",
    "BUSY",
    "LOADING",
    "MASTERDOWN",
    "TRYAGAIN",
    "CLUSTERDOWN",
    "MISCONF",
    "NOREPLICAS",
    "NOSCRIPT",
];

fn code_of(error: &RedisError) -> Option<&str> {
    let code = error.code()?;
    // Before 7.0 an error inside a script begins with the script's name and line, as in `@user_script: 12: -OOM …`.
    if code != "ERR" && !code.starts_with('@') {
        return Some(code);
    }
    let detail = error.detail().unwrap_or_default();
    let denied = detail.contains("can't run this command or subcommand") || detail.contains("ACL failure in script");
    if denied {
        return Some("NOPERM");
    }
    Some(
        CODES
            .into_iter()
            .find(|code| detail.split(|c: char| !c.is_ascii_uppercase()).any(|word| word == *code))
            .unwrap_or("ERR"),
    )
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::*;

    fn error(answer: &str) -> RedisError {
        let value = redis::parse_redis_value(answer.as_bytes()).unwrap();
        let Value::ServerError(error) = value else { panic!("{answer} is no error") };
        error.into()
    }

    #[test]
    fn an_error_inside_of_a_script_is_read_in_the_words_of_every_version() {
        let answers = [
            ("-OOM command not allowed when used memory > 'maxmemory'. script: f_1, on @user_script:3.\r\n", "OOM"),
            ("-@user_script: 235: -OOM command not allowed when used memory > 'maxmemory'.\r\n", "OOM"),
            ("-@user_script: 235: -READONLY You can't write against a read only replica.\r\n", "READONLY"),
            (
                "-ERR Error running script (call to f_1): @user_script:3: @user_script: 3: -MISCONF Redis is\r\n",
                "MISCONF",
            ),
            ("-@user_script: 3: The user executing the script can't run this command or subcommand\r\n", "NOPERM"),
        ];
        for (answer, code) in answers {
            let error = error(answer);
            assert_eq!(code_of(&error), Some(code), "{answer}");
            assert_eq!(closes_connection(&error), code == "READONLY", "{answer}");
        }
    }
}

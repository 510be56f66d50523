//! One question to all Sentinels, and what becomes of their answers.

use std::collections::HashSet;

use redis::{AsyncConnectionConfig, ErrorKind, RedisError, Value};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{Address, DEFAULT_PORT, SCHEME, Sentinels, text};
use crate::store::redis::target::{Failure, Server};
use crate::store::{StoreError, StoreErrorKind};

/// What one Sentinel said.
enum Answer {
    Primary(Address),
    /// It knows no primary of this name, but these.
    Unknown(Vec<String>),
    /// It wants a login, or is no Sentinel.
    Refused(StoreError),
    /// No answer, or none that helps.
    Nothing(String),
}

impl Sentinels {
    /// Asks all Sentinels. What most of all of them name is the answer; else whatever was named, the most often first.
    pub(super) async fn ask(&self) -> Result<Vec<Address>, StoreError> {
        // For those that do not answer, where the others are no majority.
        let limit = self.limit / 3;
        let mut questions = JoinSet::new();
        for sentinel in self.sentinels.iter().cloned() {
            let name = self.name.clone();
            questions.spawn(async move {
                let host = sentinel.info.addr().to_string();
                match timeout(limit, ask_one(sentinel, &name)).await {
                    Ok(answer) => answer,
                    Err(_elapsed) => Answer::Nothing(format!("{host}: no answer within {limit:?}")),
                }
            });
        }
        let mut votes: Vec<(usize, Address)> = Vec::new();
        let mut others = Vec::new();
        while let Some(answer) = questions.join_next().await {
            match answer {
                Ok(Answer::Primary(address)) => {
                    let place = votes.iter().position(|(_, named)| *named == address).unwrap_or_else(|| {
                        votes.push((0, address));
                        votes.len() - 1
                    });
                    votes[place].0 += 1;
                    if votes[place].0 > self.sentinels.len() / 2 {
                        return Ok(vec![votes.swap_remove(place).1]);
                    }
                }
                Ok(other) => others.push(other),
                Err(_) => others.push(Answer::Nothing("the runtime ends".to_owned())),
            }
        }
        if votes.is_empty() {
            return Err(self.nobody_knows(others));
        }
        votes.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
        Ok(votes.into_iter().map(|(_, address)| address).collect())
    }

    /// No Sentinel named a primary.
    fn nobody_knows(&self, answers: Vec<Answer>) -> StoreError {
        let name = &self.name;
        let (mut known, mut unknowing, mut refused, mut silent) = (HashSet::new(), 0, Vec::new(), Vec::new());
        for answer in answers {
            match answer {
                Answer::Refused(error) => refused.push(error),
                Answer::Unknown(names) => {
                    unknowing += 1;
                    known.extend(names);
                }
                Answer::Nothing(text) => silent.push(text),
                Answer::Primary(_) => {}
            }
        }
        // One of several may have lost its configuration, or have another one; that is no reason to call the URL wrong.
        let most = self.sentinels.len() / 2;
        if refused.len() > most {
            return refused.swap_remove(0);
        }
        silent.extend(refused.into_iter().map(|error| error.text));
        if unknowing > most {
            let mut known: Vec<_> = known.into_iter().map(|name| format!("`{name}`")).collect();
            known.sort();
            let known = if known.is_empty() { "none at all".to_owned() } else { known.join(", ") };
            return StoreError::new(
                StoreErrorKind::Config,
                format!(
                    "the Sentinels know no primary `{name}`, but {known}; write the name that `sentinel monitor` gives it as in `{SCHEME}host1,host2/{name}`"
                ),
            );
        }
        StoreError::new(
            StoreErrorKind::Unavailable,
            format!(
                "no Sentinel knows where it is ({}); check that the hosts and ports in the URL are those of Sentinels, {DEFAULT_PORT} being the usual port",
                silent.join("; ")
            ),
        )
    }
}

async fn ask_one(sentinel: Server, name: &str) -> Answer {
    let host = sentinel.info.addr().to_string();
    let asked = async {
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let mut connection = sentinel.connect(&config).await?;
        let question = redis::cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(name).to_owned();
        match connection.send_packed_command(&question).await.and_then(Value::extract_error)? {
            Value::Nil => {
                // Only for the text of the error.
                let others = connection.send_packed_command(redis::cmd("SENTINEL").arg("MASTERS")).await;
                Ok::<_, Failure>(Answer::Unknown(others.map(|others| names(&others)).unwrap_or_default()))
            }
            answer => Ok(address(&answer)
                .map_or_else(|| Answer::Nothing(format!("{host}: its answer cannot be read")), Answer::Primary)),
        }
    };
    asked.await.unwrap_or_else(|failure| match failure {
        Failure::Client(error) => refused(&host, &error),
        Failure::Before(error) => Answer::Nothing(format!("{host}: {}", error.text)),
    })
}

fn refused(host: &str, error: &RedisError) -> Answer {
    let code = error.code().unwrap_or_default();
    if error.kind() == ErrorKind::AuthenticationFailed || matches!(code, "NOAUTH" | "WRONGPASS" | "NOPERM") {
        return Answer::Refused(StoreError::new(
            StoreErrorKind::Permission,
            format!(
                "the Sentinel at {host} wants a login, or another one; write `?sentinel_username=...&sentinel_password=...` at the end of the URL, percent-encoded, or leave out the name for the default user; the login before the hosts is that of the primary"
            ),
        ));
    }
    if code == "ERR" && error.detail().is_some_and(|detail| detail.to_ascii_lowercase().starts_with("unknown command"))
    {
        return Answer::Refused(StoreError::new(
            StoreErrorKind::Config,
            format!(
                "{host} is no Sentinel; write the addresses of the Sentinels as in `{SCHEME}host1,host2/mymaster`, or `redis://` for a server without them"
            ),
        ));
    }
    Answer::Nothing(format!("{host}: {error}"))
}

/// Host and port.
fn address(answer: &Value) -> Option<Address> {
    let Value::Array(parts) = answer else { return None };
    Some(Address { host: text(parts.first()?)?.to_owned(), port: text(parts.get(1)?)?.parse().ok()? })
}

/// The names in a list of descriptions.
fn names(answer: &Value) -> Vec<String> {
    let Value::Array(primaries) = answer else { return Vec::new() };
    let name = |primary: &Value| {
        let Value::Array(fields) = primary else { return None };
        let place = fields.iter().position(|field| text(field) == Some("name"))?;
        text(fields.get(place + 1)?).map(str::to_owned)
    };
    primaries.iter().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_called_no_sentinel_only_where_it_does_not_know_the_question() {
        let answered = |text: &str| {
            let error = redis::parse_redis_value(text.as_bytes()).and_then(Value::extract_error).unwrap_err();
            refused("h:1", &error)
        };
        for unknown in ["-ERR unknown command 'SENTINEL', with args\r\n", "-ERR unknown command `SENTINEL`\r\n"] {
            assert!(matches!(answered(unknown), Answer::Refused(error) if error.text.contains("is no Sentinel")));
        }
        for other in ["-ERR max number of clients reached\r\n", "-LOADING it loads\r\n"] {
            assert!(matches!(answered(other), Answer::Nothing(text) if text.contains("h:1")), "{other}");
        }
    }
}

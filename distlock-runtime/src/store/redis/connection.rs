//! One multiplexed connection to one server, made again when it breaks.
//!
//! The client crate's own reconnection takes seconds before it gives up and keeps a frozen connection for ever, so this
//! file does it: a connection is made on demand by one task at a time, shared by all callers, replaced after an error or
//! after several commands in a row without an answer, and a server that refuses connections is asked at most every
//! [`CONNECT_PAUSE`]. Callers never wait longer than their own limit.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, ErrorKind, RedisError, ServerErrorKind, Value};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::target::Target;
use crate::store::{StoreError, StoreErrorKind};

/// The least time between two connection attempts after a failed one.
const CONNECT_PAUSE: Duration = Duration::from_millis(100);

/// After this many commands in a row without an answer the connection counts as frozen.
const FROZEN_AFTER: u32 = 2;

/// A connection slot. Its driver lives on the runtime of whoever made the connection.
#[derive(Debug)]
pub(crate) struct Connection {
    target: Target,
    connect_timeout: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Idle { failed: Option<(Instant, StoreError)> },
    Connecting(watch::Receiver<Option<Result<Live, StoreError>>>),
    Connected { live: Live, silent: u32 },
}

#[derive(Clone, Debug)]
struct Live {
    connection: MultiplexedConnection,
    /// Tells connections of one slot apart, so that a late error does not close its successor.
    id: Arc<()>,
}

impl Connection {
    pub(crate) fn new(target: Target, connect_timeout: Duration) -> Self {
        Self { target, connect_timeout, state: Mutex::new(State::Idle { failed: None }) }
    }

    /// Sends one command and waits at most `limit` for its answer, connecting first if need be.
    ///
    /// Cancel safe in this sense: a command whose future is dropped is not repeated, but may be executed.
    pub(crate) async fn send(&self, command: &Cmd, limit: Duration) -> Result<Value, Refusal> {
        let deadline = Instant::now() + limit.min(FAR);
        let mut live = match self.current() {
            Some(live) => live,
            None => self.connect(limit).await?,
        };
        let left = deadline.saturating_duration_since(Instant::now());
        match timeout(left, live.connection.send_packed_command(command)).await {
            Ok(answer) => {
                let answer = answer.and_then(Value::extract_error);
                self.note_answer(&live, &answer);
                answer.map_err(Refusal::from)
            }
            Err(_elapsed) => {
                self.note_silence(&live);
                Err(Refusal::Failed(StoreError::unanswered(format!(
                    "no answer from {} within {limit:?}",
                    self.address()
                ))))
            }
        }
    }

    /// Makes sure that a connection stands.
    pub(crate) async fn ready(&self, limit: Duration) -> Result<(), StoreError> {
        match self.current() {
            Some(_) => Ok(()),
            None => self.connect(limit).await.map(drop),
        }
    }

    fn current(&self) -> Option<Live> {
        match &*self.lock() {
            State::Connected { live, .. } => Some(live.clone()),
            _ => None,
        }
    }

    async fn connect(&self, limit: Duration) -> Result<Live, StoreError> {
        let mut progress = match self.join_or_start() {
            Progress::Connected(live) => return Ok(live),
            Progress::Refused(error) => return Err(error),
            Progress::Connecting(progress) => progress,
        };
        match timeout(limit, progress.wait_for(Option::is_some)).await {
            Ok(Ok(result)) => result.clone().unwrap_or_else(|| Err(self.abandoned())),
            // The runtime that was connecting has ended; the next caller starts anew.
            Ok(Err(_closed)) => Err(self.abandoned()),
            Err(_elapsed) => Err(StoreError::new(
                StoreErrorKind::Unavailable,
                format!("no connection to {} within {limit:?}", self.address()),
            )),
        }
    }

    /// One task connects for everybody; it is detached, so a caller that gives up does not spoil it for the others.
    fn join_or_start(&self) -> Progress {
        let mut state = self.lock();
        match &*state {
            State::Connected { live, .. } => return Progress::Connected(live.clone()),
            State::Connecting(progress) => return Progress::Connecting(progress.clone()),
            State::Idle { failed: Some((at, error)) } if at.elapsed() < CONNECT_PAUSE => {
                return Progress::Refused(error.clone());
            }
            _ => {}
        }
        let (sender, progress) = watch::channel(None);
        *state = State::Connecting(progress.clone());
        drop(state);
        let attempt = Attempt { target: self.target.clone(), limit: self.connect_timeout, address: self.address() };
        // The sender goes with the task: if its runtime ends, the receivers see it closed.
        tokio::spawn(async move {
            let _ = sender.send(Some(attempt.run().await));
        });
        Progress::Connecting(progress)
    }

    /// Takes the outcome of a finished attempt into the slot.
    fn settle(state: &mut State) {
        let State::Connecting(progress) = state else { return };
        let outcome = progress.borrow().clone();
        match outcome {
            Some(Ok(live)) => *state = State::Connected { live, silent: 0 },
            Some(Err(error)) => *state = State::Idle { failed: Some((Instant::now(), error)) },
            // The runtime that was connecting has ended.
            None if progress.has_changed().is_err() => *state = State::Idle { failed: None },
            None => {}
        }
    }

    fn note_answer(&self, used: &Live, answer: &Result<Value, RedisError>) {
        let broken = answer.as_ref().is_err_and(closes_connection);
        self.update(used, |silent| {
            *silent = 0;
            !broken
        });
    }

    fn note_silence(&self, used: &Live) {
        self.update(used, |silent| {
            *silent += 1;
            *silent < FROZEN_AFTER
        });
    }

    /// Applies `keep` to the slot if it still holds `used`; `false` empties the slot.
    fn update(&self, used: &Live, keep: impl FnOnce(&mut u32) -> bool) {
        let mut state = self.lock();
        if let State::Connected { live, silent } = &mut *state
            && Arc::ptr_eq(&live.id, &used.id)
            && !keep(silent)
        {
            *state = State::Idle { failed: None };
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        Self::settle(&mut state);
        state
    }

    fn abandoned(&self) -> StoreError {
        StoreError::new(
            StoreErrorKind::Unavailable,
            format!("the connection to {} was given up while it was made", self.address()),
        )
    }

    /// Where the server is, without the credentials that the URL may have held.
    pub(crate) fn address(&self) -> String {
        self.target.address()
    }
}

/// Longer than any wait, and short enough to be added to a moment.
const FAR: Duration = Duration::from_secs(60 * 60 * 24 * 365);

enum Progress {
    Connected(Live),
    Refused(StoreError),
    Connecting(watch::Receiver<Option<Result<Live, StoreError>>>),
}

struct Attempt {
    target: Target,
    limit: Duration,
    address: String,
}

impl Attempt {
    async fn run(self) -> Result<Live, StoreError> {
        // Commands are timed by the callers, each within its own budget.
        let config = AsyncConnectionConfig::new().set_connection_timeout(Some(self.limit)).set_response_timeout(None);
        match timeout(self.limit, self.target.connect(&config)).await {
            Ok(Ok(connection)) => Ok(Live { connection, id: Arc::new(()) }),
            Ok(Err(error)) => Err(self.failure(&error)),
            Err(_elapsed) => Err(StoreError::new(
                StoreErrorKind::Unavailable,
                format!("no connection to {} within {:?}", self.address, self.limit),
            )),
        }
    }

    fn failure(&self, error: &RedisError) -> StoreError {
        let address = &self.address;
        match error.kind() {
            ErrorKind::AuthenticationFailed => StoreError::new(
                StoreErrorKind::Permission,
                format!(
                    "the login at {address}; check the user and the password in the URL, and percent-encode special characters in them"
                ),
            ),
            ErrorKind::InvalidClientConfig => StoreError::new(
                StoreErrorKind::Config,
                format!("the server at {address} cannot be used with this URL: {}", error.category()),
            ),
            _ => StoreError { unanswered: false, ..classify(error) }.at(address),
        }
    }
}

impl StoreError {
    fn at(mut self, address: &str) -> Self {
        self.text = format!("{address}: {}", self.text);
        self
    }
}

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
/// a new look-up of its name finds the new primary.
fn closes_connection(error: &RedisError) -> bool {
    match error.kind() {
        ErrorKind::Io | ErrorKind::Parse | ErrorKind::Client => true,
        ErrorKind::Server(_) | ErrorKind::Extension => code_of(error) == Some("READONLY"),
        _ => error.is_unrecoverable_error(),
    }
}

/// What an error means for the command that met it. Old servers wrap an error raised inside a script in a plain `ERR`,
/// so the text is searched for the code as well.
fn classify(error: &RedisError) -> StoreError {
    use StoreErrorKind::{Config, Permission, Unavailable};
    let Some(code) = code_of(error) else {
        return match error.kind() {
            ErrorKind::AuthenticationFailed => {
                StoreError::new(Permission, "the login; check the user and the password in the URL")
            }
            _ => StoreError::unanswered(error.to_string()),
        };
    };
    let detail = error.detail().unwrap_or_default();
    match code {
        "NOPERM" => StoreError::new(
            Permission,
            format!(
                "{detail}; allow the locking commands (EVAL, EVALSHA, GET, SET, DEL, EXISTS, PTTL, PEXPIRE, TIME) on the keys of the namespace"
            ),
        ),
        "NOAUTH" | "WRONGPASS" => StoreError::new(Permission, "the login; check the user and the password in the URL"),
        "OOM" => StoreError::new(Unavailable, "the server is out of memory (OOM); free some, or raise `maxmemory`"),
        "READONLY" => StoreError::new(
            Unavailable,
            "the server is a read-only replica (READONLY); the connection is made anew to find the primary",
        ),
        "BUSY" | "LOADING" | "MASTERDOWN" | "TRYAGAIN" | "CLUSTERDOWN" | "MISCONF" | "NOREPLICAS" => {
            StoreError::new(Unavailable, format!("the server answered {code} {detail}"))
        }
        _ => StoreError::new(Config, format!("the server answered {code} {detail}")),
    }
}

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
    if code != "ERR" {
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

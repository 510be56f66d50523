//! Making a connection, for everybody who wants one at that moment.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::{AsyncConnectionConfig, ErrorKind, RedisError};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::answers::{classify, refuses_login};
use super::connection::{Live, Refused};
use super::listening;
use super::target::{Failure, Target};
use crate::store::ears::Ears;
use crate::store::{StoreError, StoreErrorKind};

/// A connection attempt that several callers wait for, woken in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Progress {
    ended: Mutex<Option<Ended>>,
    told: Notify,
}

/// How an attempt ended.
#[derive(Clone, Debug)]
pub(super) enum Ended {
    Connected(Live),
    Failed(StoreError),
    /// Its runtime ended first.
    Abandoned(StoreError),
}

impl Progress {
    /// The first end counts.
    fn end(&self, ended: impl FnOnce() -> Ended) {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(ended);
        self.told.notify_waiters();
    }

    pub(super) fn peek(&self) -> Option<Ended> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) async fn outcome(&self) -> Result<Live, StoreError> {
        loop {
            let told = self.told.notified();
            tokio::pin!(told);
            // Listen first, then look: an end in between is not missed.
            told.as_mut().enable();
            match self.peek() {
                Some(Ended::Connected(live)) => return Ok(live),
                Some(Ended::Failed(error) | Ended::Abandoned(error)) => return Err(error),
                None => told.await,
            }
        }
    }
}

/// Goes with the task that connects: if its runtime ends first, those who wait are told, and the next caller starts anew.
struct Abandoned {
    progress: Arc<Progress>,
    address: String,
    refusal: Arc<Refused>,
}

impl Drop for Abandoned {
    fn drop(&mut self) {
        self.progress.end(|| {
            let text = format!("the connection to {} was given up while it was made", self.address);
            let error = StoreError::new(StoreErrorKind::Unavailable, text);
            // One that panics, as a provider of credentials may, would do so again at once. A runtime that ends was refused
            // by nobody.
            if std::thread::panicking() {
                let failed = Some((Instant::now(), error.clone()));
                *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = failed;
            }
            Ended::Abandoned(error)
        });
    }
}

/// One attempt.
pub(super) struct Attempt {
    pub(super) target: Target,
    pub(super) limit: Duration,
    pub(super) address: String,
    pub(super) ears: Option<Arc<Ears>>,
    /// Told how it ends.
    pub(super) refusal: Arc<Refused>,
}

impl Attempt {
    /// Begins it in a task of its own, so that a caller that gives up does not spoil it for the others.
    pub(super) fn start(self, progress: Arc<Progress>) {
        let refusal = self.refusal.clone();
        let abandoned = Abandoned { progress, address: self.address.clone(), refusal: refusal.clone() };
        tokio::spawn(async move {
            let ended = self.run().await;
            let failed = ended.as_ref().err().map(|error| (Instant::now(), error.clone()));
            *refusal.lock().unwrap_or_else(PoisonError::into_inner) = failed;
            abandoned.progress.end(|| ended.map_or_else(Ended::Failed, Ended::Connected));
        });
    }

    async fn run(self) -> Result<Live, StoreError> {
        // Commands are timed by the callers, each within its own budget.
        let mut config =
            AsyncConnectionConfig::new().set_connection_timeout(Some(self.limit)).set_response_timeout(None);
        let listening = Arc::<listening::State>::default();
        if let Some(ears) = self.ears.clone() {
            config = config.set_push_sender(listening::hear(ears, listening.clone()));
        }
        match timeout(self.limit, self.target.connect(&config)).await {
            Ok(Ok((connection, watch))) => Ok(Live::new(connection, listening, watch)),
            Ok(Err(Failure::Client(error))) => Err(self.failure(&error)),
            Ok(Err(Failure::Before(error))) => Err(error.at(&self.address)),
            Err(_elapsed) => Err(StoreError::new(StoreErrorKind::Unavailable, self.target.no_connection(self.limit))),
        }
    }

    fn failure(&self, error: &RedisError) -> StoreError {
        let address = &self.address;
        match error.kind() {
            _ if refuses_login(error) => StoreError::new(
                StoreErrorKind::Permission,
                format!("{address}: the login: user or password is wrong or missing; {}", self.target.login_advice()),
            ),
            // As the client crate says that the database cannot be selected.
            ErrorKind::Server(_) if error.to_string().contains("refused to switch database") => {
                self.no_database(error.detail().unwrap_or_default())
            }
            ErrorKind::Parse | ErrorKind::UnexpectedReturnType => StoreError::new(
                StoreErrorKind::Config,
                format!(
                    "{address} answers, but not as a Redis or Valkey server; check host and port, and write `rediss://` for a TLS port"
                ),
            ),
            ErrorKind::InvalidClientConfig => StoreError::new(
                StoreErrorKind::Config,
                format!("the server at {address} cannot be used with this URL: {}", error.category()),
            ),
            _ => {
                let mut failure = StoreError { unanswered: false, ..classify(error) }.at(address);
                if error.is_connection_dropped() {
                    failure.text.push_str(self.target.other_scheme());
                }
                failure
            }
        }
    }

    fn no_database(&self, detail: &str) -> StoreError {
        let (address, database) = (&self.address, self.target.database());
        if detail.contains("permissions") {
            let text = format!(
                "{address}: the user may not run `SELECT`; add `+select` to its rule, or leave `/{database}` out of the URL"
            );
            return StoreError::new(StoreErrorKind::Permission, text);
        }
        let text = format!(
            "{address}: database {database} cannot be used ({detail}); write one that the server has, or leave it out of the URL"
        );
        StoreError::new(StoreErrorKind::Config, text)
    }
}

impl StoreError {
    pub(super) fn at(mut self, address: &str) -> Self {
        self.text = format!("{address}: {}", self.text);
        self
    }
}

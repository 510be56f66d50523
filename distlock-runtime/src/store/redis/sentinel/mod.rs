//! Finding the primary: the Sentinels are asked for it whenever a connection is made, so after each drop and each `READONLY`.
//!
//! All Sentinels of the URL are asked at the same time. The address that most of them name is taken as soon as it is known;
//! a dead Sentinel then costs nothing, and one that has slept through a failover is outvoted. What they name must say itself
//! that it is a primary. A primary that does not answer is given up as soon as the Sentinels name another one.
//!
//! A primary that is replaced while it is well hears of it seconds later, and takes writes until then that nobody will see
//! again. So each connection listens to one Sentinel, and is closed when most of them name another primary.

mod ask;
mod url;
mod watch;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ConnectionAddr, RedisError, Value};
use tokio::time::{Instant, sleep, timeout};

use super::answers::classify;
use super::target::{Failure, Server, Watch};
use crate::store::{StoreError, StoreErrorKind};

/// How the URLs begin that are read here.
pub(crate) const SCHEME: &str = "redis+sentinel://";

/// Where Sentinels listen unless they are told otherwise.
const DEFAULT_PORT: &str = "26379";

/// How often the Sentinels are asked again while their last answer did not lead to a primary.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// What the URL says, read once.
#[derive(Clone)]
pub(crate) struct Sentinels {
    /// What the Sentinels call the primary.
    name: String,
    sentinels: Vec<Server>,
    /// How one gets in at the primary, wherever it is.
    primary: Server,
    /// How long one connection may take to be made, all questions included.
    limit: Duration,
}

impl fmt::Debug for Sentinels {
    /// Without the logins.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sentinels").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Address {
    host: String,
    port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// Why an address that the Sentinels named led to no connection.
enum Dead {
    /// The Sentinels name another one by now, or it is about to become a primary.
    Ask(StoreError),
    /// It was asked, and that was that.
    End(Failure),
}

impl Sentinels {
    /// How one gets in at the primary.
    pub(super) fn primary(&self) -> &Server {
        &self.primary
    }

    /// The primary, whoever it is now.
    pub(super) fn address(&self) -> String {
        format!("the primary `{}`", self.name)
    }

    /// Finds the primary and connects to it.
    pub(super) async fn connect(
        self: &Arc<Self>,
        config: &AsyncConnectionConfig,
    ) -> Result<(MultiplexedConnection, Watch), Failure> {
        let give_up_at = Instant::now() + self.limit;
        let mut reason = None;
        loop {
            let left = give_up_at.saturating_duration_since(Instant::now());
            match timeout(left, self.find(config)).await {
                Ok(Ok((connection, address))) => {
                    let watch = Watch::spawn(self.clone().watch(connection.clone(), address));
                    return Ok((connection, watch));
                }
                Ok(Err(Dead::End(failure))) => return Err(failure),
                Ok(Err(Dead::Ask(error))) => reason = Some(error),
                Err(_elapsed) => return Err(reason.unwrap_or_else(|| silent(self.limit)).into()),
            }
            sleep(ASK_AGAIN.min(give_up_at.saturating_duration_since(Instant::now()))).await;
        }
    }

    /// Asks once, and tries what is named, what most of them name first.
    async fn find(&self, config: &AsyncConnectionConfig) -> Result<(MultiplexedConnection, Address), Dead> {
        let mut dead = None;
        for address in self.ask().await.map_err(|error| Dead::End(error.into()))? {
            let tried = tokio::select! {
                biased;
                tried = self.reach(&address, config) => tried,
                () = self.another_than(&address) => {
                    let text = format!("the Sentinels name another one than {address} now, which does not answer");
                    return Err(Dead::Ask(StoreError::new(StoreErrorKind::Unavailable, text)));
                }
            };
            match tried {
                Ok(connection) => return Ok((connection, address)),
                Err(error) => dead = dead.or(Some(error)),
            }
        }
        Err(dead.unwrap_or_else(|| Dead::End(silent(self.limit).into())))
    }

    /// Connects to a server and looks whether it is a primary.
    async fn reach(&self, address: &Address, config: &AsyncConnectionConfig) -> Result<MultiplexedConnection, Dead> {
        let Server { info, access } = self.primary.clone();
        let info = info.set_addr(ConnectionAddr::Tcp(address.host.clone(), address.port));
        let mut connection = match (Server { info, access }).connect(config).await {
            Ok(connection) => connection,
            Err(Failure::Client(error)) => return Err(Dead::End(at(address, error))),
            Err(failure) => return Err(Dead::End(failure)),
        };
        // The answer of the handshake, which every user may ask for, tells the role as well.
        let answer = connection.send_packed_command(redis::cmd("HELLO").arg(3)).await;
        let answer = answer.map_err(|error| Dead::End(at(address, error)))?;
        match role(&answer) {
            Some(role) if role != "master" => Err(Dead::Ask(StoreError::new(
                StoreErrorKind::Unavailable,
                format!("the Sentinels name {address}, which says that it is a {role}; a failover may be under way"),
            ))),
            _ => Ok(connection),
        }
    }
}

/// A failure of a server that the Sentinels have named.
fn at(address: &Address, error: RedisError) -> Failure {
    let meaning = classify(&error);
    if meaning.kind != StoreErrorKind::Unavailable {
        return error.into();
    }
    StoreError::new(StoreErrorKind::Unavailable, format!("at {address}: {}", meaning.text)).into()
}

fn silent(limit: Duration) -> StoreError {
    StoreError::new(
        StoreErrorKind::Unavailable,
        format!("neither the Sentinels nor what they name answered within {limit:?}"),
    )
}

fn role(answer: &Value) -> Option<&str> {
    let Value::Map(fields) = answer else { return None };
    fields.iter().find(|(name, _)| text(name) == Some("role")).and_then(|(_, role)| text(role))
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_as_it_is_written() {
        let shown = |host: &str| Address { host: host.to_owned(), port: 6379 }.to_string();
        assert_eq!(shown("10.0.0.1"), "10.0.0.1:6379");
        assert_eq!(shown("fe80::1"), "[fe80::1]:6379");
    }
}

//! The store on one Redis or Valkey server.
//!
//! Two connections: the *front* one lives on the user's runtime and carries acquisitions and awaited releases; the
//! *back* one lives on the manager's own thread and carries renewals, and releases that the front one did not answer.
//! Each operation is one script, so one round trip.

mod connection;
mod scripts;
pub(crate) mod target;

use std::time::{Duration, UNIX_EPOCH};

use redis::{Client, Cmd, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, Value};

use self::connection::Connection;
use self::scripts::{ACQUIRE, Form, RELEASE, RENEW};
use self::target::Target;
use super::{
    Acquire, Acquired, BoxFuture, Lane, LockStore, Release, Released, Renewal, Renewed, StoreError, StoreErrorKind,
};
use crate::error::{Holder, Occupant};
use crate::key::LockName;

/// Bounds of the pause between two looks at a key that another process holds.
const POLL: std::ops::Range<u64> = 20..250;

#[derive(Debug)]
pub(crate) struct RedisStore {
    front: Connection,
    back: Connection,
}

impl RedisStore {
    /// Reads the URL; connects to nothing.
    pub(crate) fn open(url: &str, connect_timeout: Duration) -> Result<Self, StoreError> {
        let client = Client::open(connection_info(url)?).map_err(|error| bad_url(error.category()))?;
        Ok(Self::on(Target::Server(client), connect_timeout))
    }

    /// A store on one node; connects to nothing.
    pub(crate) fn on(target: Target, connect_timeout: Duration) -> Self {
        Self { front: Connection::new(target.clone(), connect_timeout), back: Connection::new(target, connect_timeout) }
    }

    /// Makes the front connection.
    pub(crate) async fn ready(&self, limit: Duration) -> Result<(), StoreError> {
        self.front.ready(limit).await
    }

    async fn acquire(&self, request: &Acquire, limit: Duration) -> Result<Acquired, StoreError> {
        let token = request.token.as_str();
        let gone = request.name.gone(token);
        let value = ACQUIRE
            .run(&self.front, Form::Known, limit, 3, |command: &mut Cmd| {
                command.arg(&*request.name.wire).arg(&*request.name.fence).arg(&gone);
                command.arg(token).arg(millis(request.expiry)).arg(&*request.holder);
            })
            .await?;
        acquired(value).ok_or_else(|| garbled("acquire"))
    }

    async fn renew(&self, batch: &[Renewal], limit: Duration) -> Result<Vec<Renewed>, StoreError> {
        let value = RENEW
            .run(&self.back, Form::Known, limit, batch.len(), |command: &mut Cmd| {
                for renewal in batch {
                    command.arg(&*renewal.name.wire);
                }
                for renewal in batch {
                    command.arg(renewal.token.as_str()).arg(millis(renewal.expiry));
                }
            })
            .await?;
        renewed(value).filter(|answers| answers.len() == batch.len()).ok_or_else(|| garbled("renew"))
    }

    async fn release(&self, request: &Release, lane: Lane, limit: Duration) -> Result<Released, StoreError> {
        let token = request.token.as_str();
        let gone = request.name.gone(token);
        let (connection, form) = match lane {
            Lane::Awaited => (&self.front, Form::Known),
            Lane::Detached => (&self.front, Form::Whole),
            Lane::Back => (&self.back, Form::Whole),
        };
        let value = RELEASE
            .run(connection, form, limit, 2, |command: &mut Cmd| {
                command.arg(&*request.name.wire).arg(&gone).arg(token);
                command.arg(request.keep.map_or(0, millis)).arg(request.bury.map_or(0, millis));
            })
            .await?;
        match value {
            Value::Int(1) => Ok(Released::Deleted),
            Value::Int(0) => Ok(Released::Absent),
            Value::Int(-1) => Ok(Released::Stolen),
            _ => Err(garbled("release")),
        }
    }
}

impl LockStore for RedisStore {
    fn acquire<'a>(&'a self, request: &'a Acquire, limit: Duration) -> BoxFuture<'a, Result<Acquired, StoreError>> {
        Box::pin(self.acquire(request, limit))
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal], limit: Duration) -> BoxFuture<'a, Result<Vec<Renewed>, StoreError>> {
        Box::pin(self.renew(batch, limit))
    }

    fn release<'a>(
        &'a self,
        request: &'a Release,
        lane: Lane,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Released, StoreError>> {
        Box::pin(self.release(request, lane, limit))
    }

    /// Jittered polling, for want of a push; the engine bounds it by what is left of the holder's expiry.
    fn wake_up<'a>(&'a self, _name: &'a LockName, at_most: Duration) -> BoxFuture<'a, ()> {
        let pause = Duration::from_millis(fastrand::u64(POLL)).min(at_most);
        Box::pin(tokio::time::sleep(pause))
    }
}

/// Whole milliseconds, rounded up, never zero: a zero expiry is refused or deletes.
fn millis(duration: Duration) -> u64 {
    let rounded = duration.as_nanos().div_ceil(1_000_000).max(1);
    u64::try_from(rounded).unwrap_or(u64::MAX)
}

/// Reads a `redis://`, `unix://` or `redis+unix://` URL, and turns the client's view of it into ours: RESP3 and no Nagle delay.
fn connection_info(url: &str) -> Result<ConnectionInfo, StoreError> {
    let info = url.into_connection_info().map_err(|error| bad_url(error.category()))?;
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    let tcp = info.tcp_settings().clone().set_nodelay(true);
    Ok(info.set_redis_settings(settings).set_tcp_settings(tcp))
}

/// The URL itself may hold a password, so it is not repeated.
fn bad_url(problem: &str) -> StoreError {
    StoreError::new(
        StoreErrorKind::Config,
        format!(
            "the URL of the lock server cannot be read ({problem}); write `redis://[user:password@]host[:port][/db]` or `unix:///path`, and percent-encode `@`, `/` and `#` in a password"
        ),
    )
}

fn garbled(script: &str) -> StoreError {
    StoreError::unanswered(format!(
        "the server's answer to the {script} script cannot be read; check that a Redis or Valkey server of version 6.2 or later is behind the address"
    ))
}

fn acquired(value: Value) -> Option<Acquired> {
    let Value::Array(parts) = value else { return None };
    match text(parts.first()?)? {
        "granted" => Some(Acquired::Granted { fencing_token: text(parts.get(1)?)?.parse().ok()? }),
        "held" => {
            let Value::Int(left) = *parts.get(1)? else { return None };
            // A foreign client's value may be any bytes; it still holds the key.
            let value = text(parts.get(2)?).unwrap_or_default();
            let now_micros = text(parts.get(3)?)?.parse().ok()?;
            Some(Acquired::Held(occupant(value, u64::try_from(left).ok()?, now_micros)))
        }
        "dead" => Some(Acquired::Dead),
        "foreign" => Some(Acquired::Foreign(match text(parts.get(1)?)? {
            "type" => {
                "a value of another type stands under this key on the server; delete it, or use another key or namespace"
            }
            "expiry" => {
                "a value without an expiry stands under this key on the server, so it is no lease; delete it, or use another key or namespace"
            }
            _ => {
                "the fencing counter of this namespace is not a whole number below 2^53; restore it, or use another namespace"
            }
        })),
        _ => None,
    }
}

/// Reads `<token> <fencing token> <host>/<pid> <function> <since>`.
fn occupant(value: &str, left_millis: u64, now_micros: u64) -> Occupant {
    let retry_after = Some(Duration::from_millis(left_millis));
    let described = || {
        let mut words = value.split(' ').skip(2);
        let (host, pid) = words.next()?.rsplit_once('/')?;
        let (function, since) = (words.next()?, words.next()?.parse::<u64>().ok()?);
        let held_for = Duration::from_micros(now_micros.saturating_sub(since));
        let since = UNIX_EPOCH.checked_add(Duration::from_micros(since))?;
        Some((Holder::new(host, pid.parse().ok()?, function, since), held_for))
    };
    match described() {
        Some((holder, held_for)) => Occupant { holder: Some(holder), retry_after, held_for: Some(held_for) },
        None => Occupant { holder: None, retry_after, held_for: None },
    }
}

fn renewed(value: Value) -> Option<Vec<Renewed>> {
    let Value::Array(answers) = value else { return None };
    answers
        .into_iter()
        .map(|answer| match answer {
            Value::Int(1) => Some(Renewed::Yes),
            Value::Int(0) => Some(Renewed::Absent),
            Value::Int(-1) => Some(Renewed::Stolen),
            _ => None,
        })
        .collect()
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
    fn an_expiry_is_never_rounded_to_nothing() {
        assert_eq!(millis(Duration::from_millis(500)), 500);
        assert_eq!(millis(Duration::from_micros(500)), 1);
        assert_eq!(millis(Duration::from_micros(10_001)), 11);
        assert_eq!(millis(Duration::ZERO), 1);
    }

    #[test]
    fn a_holder_is_read_back_and_a_foreign_value_is_not_guessed() {
        let value = "6f9619ff-8b86-4d01-b42d-00cf4fc964ff 17 web-1/42 shop::claim 1000000";
        let described = occupant(value, 1500, 3_000_000);
        let holder = described.holder.unwrap();
        assert_eq!((holder.host(), holder.pid(), holder.function()), ("web-1", 42, "shop::claim"));
        assert_eq!(described.held_for, Some(Duration::from_secs(2)));
        assert_eq!(described.retry_after, Some(Duration::from_millis(1500)));
        for foreign in ["", "x", "token", "a b c d e f", "1 2 /x f 3", "1 2 h/9 f 99999999999999999999999"] {
            assert!(occupant(foreign, 1, 1).holder.is_none(), "{foreign:?}");
        }
    }

    #[test]
    fn a_bad_url_is_refused_without_repeating_its_password() {
        for url in ["redis://:p@ss/w#rd@host", "http://:secret@host", "nonsense", ""] {
            let text = RedisStore::open(url, Duration::from_secs(1)).unwrap_err().text;
            assert!(text.contains("percent-encode"), "{text}");
            assert!(!text.contains("secret") && !text.contains("w#rd"), "{text}");
        }
    }
}

//! The store on one Redis or Valkey server.
//!
//! Two connections: the *front* one lives on the user's runtime and carries acquisitions and awaited releases; the
//! *back* one lives on the manager's own thread and carries renewals, and releases that the front one did not answer.
//! Each operation is one script, so one round trip. Those who wait are told of their turn on the front connection.

mod answers;
mod connection;
mod listening;
mod scripts;
pub(crate) mod target;

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use redis::{Client, Cmd, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisWrite, Value};

use self::connection::Connection;
use self::listening::Listening;
use self::scripts::{ACQUIRE, Form, RELEASE, RENEW};
use self::target::Target;
use super::ears::{Ear, Ears};
use super::{
    Acquire, Acquired, BoxFuture, FencingTokens, Lane, LockStore, Release, Released, Renewal, Renewed, StoreError,
    StoreErrorKind,
};
use crate::error::{Holder, Occupant};
use crate::key::{LockName, Names};

/// Bounds of the pause between two looks at a key that another process holds, where the server tells nobody of anything.
const POLL: std::ops::Range<u64> = 20..250;

#[derive(Debug)]
pub(crate) struct RedisStore {
    front: Connection,
    back: Connection,
    ears: Arc<Ears>,
}

impl RedisStore {
    /// Reads the URL; connects to nothing.
    pub(crate) fn open(url: &str, connect_timeout: Duration, response_timeout: Duration) -> Result<Self, StoreError> {
        let client = Client::open(connection_info(url)?).map_err(|error| bad_url(error.category()))?;
        Ok(Self::on(Target::Server(client), connect_timeout, response_timeout))
    }

    /// A store on one node; connects to nothing.
    pub(crate) fn on(target: Target, connect_timeout: Duration, response_timeout: Duration) -> Self {
        let ears = Arc::new(Ears::default());
        let connection = |target, ears| Connection::new(target, connect_timeout, response_timeout, ears);
        Self { front: connection(target.clone(), Some(ears.clone())), back: connection(target, None), ears }
    }

    /// Makes the front connection.
    pub(crate) async fn ready(&self, limit: Duration) -> Result<(), StoreError> {
        self.front.ready(limit).await
    }

    fn connection(&self, lane: Lane) -> &Connection {
        match lane {
            Lane::Awaited | Lane::Detached => &self.front,
            Lane::Back => &self.back,
        }
    }

    async fn acquire(&self, request: &Acquire, limit: Duration) -> Result<Acquired, StoreError> {
        let token = request.token.as_str();
        // Who cannot be told of its turn yet only asks; `wake_up` changes that.
        let wait = request.wait.zip(self.front.channel());
        let value = ACQUIRE
            .run(&self.front, Form::Known, limit, request.names.len() * ACQUIRE_KEYS, |command: &mut Cmd| {
                for name in request.names.iter() {
                    line(command, name);
                    command.write_arg_fmt(name.gone(token));
                    command.arg(&*name.fence);
                }
                command.arg(token).arg(millis(request.expiry)).arg(&*request.holder).arg(request.reserve);
                if let Some((wait, channel)) = &wait {
                    command.arg(millis(wait.life)).arg(wait.ticket.unwrap_or_default()).arg(&**channel);
                }
            })
            .await?;
        acquired(value, request.names.len()).ok_or_else(|| garbled("acquire"))
    }

    async fn renew(&self, batch: &[Renewal], lane: Lane, limit: Duration) -> Result<Vec<Renewed>, StoreError> {
        let value = RENEW
            .run(self.connection(lane), Form::Known, limit, batch.len(), |command: &mut Cmd| {
                for renewal in batch {
                    command.arg(&*renewal.wire);
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
        let keys = request.names.len() * RELEASE_KEYS;
        let fill = |command: &mut Cmd| {
            for name in request.names.iter() {
                line(command, name);
                command.write_arg_fmt(name.gone(token));
            }
            command.arg(token).arg(request.keep.map_or(0, millis)).arg(request.bury.map_or(0, millis));
        };
        let form = if lane == Lane::Awaited { Form::Known } else { Form::Whole };
        if lane == Lane::Detached {
            self.front.send_on_retired(&RELEASE.whole(keys, fill));
        }
        let value = RELEASE.run(self.connection(lane), form, limit, keys, fill).await?;
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

    fn renew<'a>(
        &'a self,
        batch: &'a [Renewal],
        lane: Lane,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Vec<Renewed>, StoreError>> {
        Box::pin(self.renew(batch, lane, limit))
    }

    fn release<'a>(
        &'a self,
        request: &'a Release,
        lane: Lane,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Released, StoreError>> {
        Box::pin(self.release(request, lane, limit))
    }

    fn hands_on(&self) -> bool {
        true
    }

    fn listen(&self, names: &Arc<Names>) -> Ear {
        self.ears.listen(names)
    }

    fn wake_up<'a>(&'a self, ear: &'a Ear, at_most: Duration) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            match self.front.listening() {
                Listening::Yes => {
                    let _ = tokio::time::timeout(at_most, ear.told()).await;
                }
                // From now on it can be told: it asks again and joins the line.
                Listening::NotYet if self.front.listen(at_most).await == Listening::Yes => {}
                Listening::NotYet | Listening::Refused => {
                    let pause = Duration::from_millis(fastrand::u64(POLL)).min(at_most);
                    tokio::time::sleep(pause).await;
                }
            }
        })
    }
}

/// How many KEYS the acquire script takes for each key of a lock.
const ACQUIRE_KEYS: usize = 5;

/// How many KEYS the release script takes for each key of a lock.
const RELEASE_KEYS: usize = 4;

/// A lock key and the keys of its line, as every script that knows the line wants them.
fn line(command: &mut Cmd, name: &LockName) {
    command.arg(&*name.wire);
    command.write_arg_fmt(name.queue());
    command.write_arg_fmt(name.waiters());
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

fn acquired(value: Value, keys: usize) -> Option<Acquired> {
    let Value::Array(parts) = value else { return None };
    let place = || match *parts.get(1)? {
        Value::Int(place) => usize::try_from(place).ok().filter(|place| *place < keys),
        _ => None,
    };
    match text(parts.first()?)? {
        "granted" => {
            let tokens: Option<Vec<u64>> = parts.iter().skip(1).map(number).collect();
            FencingTokens::new(tokens?.into_iter()).filter(|tokens| tokens.len() == keys).map(Acquired::Granted)
        }
        "held" => {
            let Value::Int(left) = *parts.get(2)? else { return None };
            // A foreign client's value may be any bytes; it still holds the key.
            let value = text(parts.get(3)?).unwrap_or_default();
            let occupant = occupant(value, u64::try_from(left).ok()?, number(parts.get(4)?)?);
            let ticket = Some(number(parts.get(5)?)?).filter(|ticket| *ticket != 0);
            Some(Acquired::Held { place: place()?, occupant, ticket })
        }
        "dead" => Some(Acquired::Dead),
        "foreign" => {
            let what = match text(parts.get(2)?)? {
                "type" => {
                    "a value of another type stands under this key on the server; delete it, or use another key or namespace"
                }
                "expiry" => {
                    "a value without an expiry stands under this key on the server, so it is no lease; delete it, or use another key or namespace"
                }
                _ => {
                    "the fencing counter of this namespace is not a whole number below 2^53; restore it, or use another namespace"
                }
            };
            Some(Acquired::Foreign { place: place()?, what })
        }
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

fn number(value: &Value) -> Option<u64> {
    text(value)?.parse().ok()
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
            let text = RedisStore::open(url, Duration::from_secs(1), Duration::from_secs(1)).unwrap_err().text;
            assert!(text.contains("percent-encode"), "{text}");
            assert!(!text.contains("secret") && !text.contains("w#rd"), "{text}");
        }
    }
}

//! The seam between the engine and a lock service.
//!
//! [`LockStore`] says what one service must do; the engine above it knows no Redis. Every operation is one try: time
//! limits, retries and what an unanswered command means are the engine's business.

pub(crate) mod ears;
pub(crate) mod facts;
pub(crate) mod memory;
pub(crate) mod redis;
pub(crate) mod redlock;

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use self::ears::{Ear, Mark};
use self::facts::{Look, NodeFacts};
use crate::background::Tails;
use crate::error::{Config, LockError, NoQuorum, Occupant, Permission, Unavailable};
use crate::key::Names;

pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What one lock service does. Implemented by [`MemoryStore`](memory::MemoryStore), [`RedisStore`](redis::RedisStore),
/// `ClusterStore`, and [`Redlock`](redlock::Redlock), which is made of several of the second.
pub(crate) trait LockStore: fmt::Debug + Send + Sync + 'static {
    /// Takes all keys if all are free, in one step on the server; otherwise none. Idempotent for its own token: if the
    /// token already holds the keys, it is granted again with the same fencing tokens, and the keys live at least one
    /// ttl from now.
    fn acquire<'a>(&'a self, request: &'a Acquire, limit: Duration) -> BoxFuture<'a, Result<Acquired, StoreError>>;

    /// Prolongs every key of the batch that still belongs to its token, upwards only. Never creates a key and never
    /// touches a foreign one. The answers stand in the order of the batch.
    fn renew<'a>(
        &'a self,
        batch: &'a [Renewal],
        lane: Lane,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Vec<Renewed>, StoreError>>;

    /// Which renewals may share a batch: those of keys with the same number. One of them is not delayed by another.
    fn group(&self, _wire: &str) -> u32 {
        0
    }

    /// Gives the keys back that belong to the token; withdraws whatever else the token has on the server.
    fn release<'a>(
        &'a self,
        request: &'a Release,
        lane: Lane,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Released, StoreError>>;

    /// Looks at each server for the doctor. One that cannot be asked is a fact as well. None where there is no server.
    fn facts<'a>(&'a self, _look: &'a Look, _limit: Duration) -> BoxFuture<'a, Vec<NodeFacts>> {
        Box::pin(std::future::ready(Vec::new()))
    }

    /// Whether a key may be handed on inside the process without the store. For one that answers at once, it is not worth it.
    fn hands_on(&self) -> bool;

    /// Whether the keys of a lock may stand on some of its servers and not on others.
    fn is_spread(&self) -> bool {
        false
    }

    /// Gives the store a place for work that nobody awaits.
    fn settle(&self, _tails: Tails) {}

    /// Has new servers vote at once, where they would abstain at first.
    fn bootstrap(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async { Err(no_quarantine()) })
    }

    /// How far wake-ups have come that nobody listened to. Taken before a question whose answer may make a waiter listen.
    fn mark(&self) -> Mark;

    /// Where a waiter for these keys is told that one of them may be free. It is told at once if a wake-up came since the
    /// mark that nobody listened to.
    fn listen(&self, names: &Arc<Names>, since: Mark) -> Ear;

    /// Completes when a key found taken may be free, and at the latest after `at_most`. A hint that grants nothing: the
    /// waiter asks again.
    fn wake_up<'a>(&'a self, ear: &'a Ear, at_most: Duration) -> BoxFuture<'a, ()>;
}

pub(crate) fn no_quarantine() -> StoreError {
    StoreError::new(
        StoreErrorKind::Config,
        "only servers in quarantine need `bootstrap`; build the manager with `.redlock([…]).quarantine(true)`, or leave the call out",
    )
}

/// One attempt to take the keys of a lock.
#[derive(Debug)]
pub(crate) struct Acquire {
    pub(crate) names: Arc<Names>,
    /// Unique per attempt; proves ownership.
    pub(crate) token: Token,
    /// How long the server keeps the keys.
    pub(crate) expiry: Duration,
    pub(crate) holder: Description,
    /// Stand in line if a key is taken. A store without lines, or one that cannot tell yet, leaves it out.
    pub(crate) wait: Option<Waiting>,
    /// How many fencing tokens to reserve for each key, the granted one included, if the store can spare them.
    pub(crate) reserve: u32,
    /// The token of the attempt before, given up: what it left behind does not stand in the way.
    pub(crate) previous: Option<Token>,
}

/// `<host>/<pid> <function>`, for whoever finds a key taken. Written only where it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Description {
    pub(crate) process: Arc<str>,
    pub(crate) function: Cow<'static, str>,
}

impl fmt::Display for Description {
    /// The function's name is one word without control characters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.process)?;
        let mut words = self.function.split(|c: char| c.is_whitespace() || c.is_control());
        f.write_str(words.next().unwrap_or_default())?;
        words.try_for_each(|word| write!(f, "_{word}"))
    }
}

/// A place in the lines of the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// How long the place is kept without another question.
    pub(crate) life: Duration,
    /// The place that an earlier answer gave.
    pub(crate) ticket: Option<u64>,
}

#[derive(Debug)]
pub(crate) enum Acquired {
    Granted {
        fencing_tokens: FencingTokens,
        /// As many as were asked for are reserved; else just these.
        reserved: bool,
        /// The servers that have not answered yet.
        rest: Option<Rest>,
    },
    Held {
        /// Which key, in the sorted order.
        place: usize,
        occupant: Occupant,
        /// The place in line, for the next question.
        ticket: Option<u64>,
        /// The token may stand on some servers: it must be given back, and not be used again.
        leftovers: bool,
    },
    /// Several ask at the same moment, and nobody is known to hold the lock. The token must be given back, as above.
    Contested {
        /// What it may be instead, if it goes on.
        or_else: Option<StoreError>,
    },
    /// Taken, but too few replicas are known to have it, for this reason. It is to be given back.
    Unacknowledged(String),
    /// The token was buried: it must not be used again.
    Dead,
    /// Something that is not a lock stands under a key's name; it is reported and never touched.
    Foreign {
        /// Which key, in the sorted order.
        place: usize,
        what: &'static str,
        /// As above.
        leftovers: bool,
    },
}

/// Completes when every server has answered a granted request or had its time; with `true` if the lease is missing on one.
pub(crate) struct Rest(pub(crate) BoxFuture<'static, bool>);

impl fmt::Debug for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rest")
    }
}

/// The fencing token of each key of a grant, in the sorted order.
#[derive(Clone, Debug)]
pub(crate) struct FencingTokens {
    pub(crate) first: u64,
    pub(crate) more: Box<[u64]>,
}

impl FencingTokens {
    /// `None` if there is none.
    pub(crate) fn new(mut tokens: impl Iterator<Item = u64>) -> Option<Self> {
        Some(Self { first: tokens.next()?, more: tokens.collect() })
    }

    pub(crate) fn len(&self) -> usize {
        1 + self.more.len()
    }

    /// That of the key at a place of the sorted order.
    pub(crate) fn at(&self, place: usize) -> u64 {
        place.checked_sub(1).and_then(|place| self.more.get(place)).copied().unwrap_or(self.first)
    }
}

/// One key to prolong.
#[derive(Clone, Debug)]
pub(crate) struct Renewal {
    pub(crate) wire: Arc<str>,
    pub(crate) token: Token,
    pub(crate) expiry: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewed {
    Yes,
    /// The key is gone.
    Absent,
    /// The key belongs to somebody else.
    Stolen,
    /// Too few of several servers answered, or of the replicas.
    Unknown,
}

/// The keys of one lock to give back.
#[derive(Clone, Debug)]
pub(crate) struct Release {
    pub(crate) names: Arc<Names>,
    pub(crate) token: Token,
    /// Leave the keys taken for this long, owned by nobody, instead of deleting them.
    pub(crate) keep: Option<Duration>,
    /// Refuse the token for this long: a copy of its acquisition may still be under way.
    pub(crate) bury: Option<Duration>,
    /// The process goes on waiting for the keys, under another token: it keeps its place in line where that is the process's.
    pub(crate) waits_on: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Released {
    Deleted,
    /// One of the keys was gone.
    Absent,
    /// One of the keys was somebody else's.
    Stolen,
}

/// How a command is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// On the connection that acquisitions use, by a caller who waits for the answer.
    Awaited,
    /// On the same connection, with nobody waiting: after everything that was sent before, and complete in itself, for a
    /// frozen server executes what it has buffered even when nobody is there any more to answer a question.
    Detached,
    /// On the background's own connection: renewals, and what the other one did not answer.
    Back,
}

/// Proof of ownership: a random UUID in its 36-character form.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Token([u8; 36]);

impl Token {
    /// From the operating system's generator, so that clones of a machine do not repeat each other.
    pub(crate) fn random() -> Self {
        let mut text = [0; 36];
        uuid::Uuid::new_v4().hyphenated().encode_lower(&mut text);
        Self(text)
    }

    pub(crate) fn as_str(&self) -> &str {
        // A hyphenated UUID is ASCII, so this never takes the default.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Debug for Token {
    /// A token must not reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Why a store gave no answer that the engine could use.
#[derive(Clone, Debug)]
pub(crate) struct StoreError {
    pub(crate) kind: StoreErrorKind,
    pub(crate) text: String,
    /// Whether the command may have reached the server and not been answered.
    pub(crate) unanswered: bool,
    /// What a node of a cluster says about where the command belongs.
    #[cfg(feature = "cluster")]
    pub(crate) detour: Option<Box<redis::cluster::Detour>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreErrorKind {
    /// No connection, no answer, or an answer that says "not now".
    Unavailable,
    /// Of several servers, too few gave an answer that decides.
    NoQuorum { granted: usize, held: usize, failed: usize },
    /// The server refuses the command or the login.
    Permission,
    /// The server cannot be used as it is set up.
    Config,
}

impl StoreErrorKind {
    /// Whether the next try may find it otherwise.
    pub(crate) fn is_outage(self) -> bool {
        matches!(self, Self::Unavailable | Self::NoQuorum { .. })
    }
}

impl StoreError {
    /// The command did not leave, or the server refused it.
    pub(crate) fn new(kind: StoreErrorKind, text: impl Into<String>) -> Self {
        Self {
            kind,
            text: text.into(),
            unanswered: false,
            #[cfg(feature = "cluster")]
            detour: None,
        }
    }

    /// The command may have been executed.
    pub(crate) fn unanswered(text: impl Into<String>) -> Self {
        Self { unanswered: true, ..Self::new(StoreErrorKind::Unavailable, text) }
    }
}

impl From<StoreError> for LockError {
    fn from(error: StoreError) -> Self {
        match error.kind {
            StoreErrorKind::Unavailable => Unavailable::new(error.text).into(),
            StoreErrorKind::NoQuorum { granted, held, failed } => {
                NoQuorum::new(granted, held, failed, error.text).into()
            }
            StoreErrorKind::Permission => Permission::new(error.text).into(),
            StoreErrorKind::Config => Config::new(error.text).into(),
        }
    }
}

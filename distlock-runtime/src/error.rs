//! What can go wrong with a lock, and what the caller should do about it.
//!
//! [`LockError`] is one small enum. Each variant carries a shared struct with accessors, so that the error stays two
//! words long, clones cheaply and can gain facts without breaking anybody. No text holds a password or a token.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Why a locked call did not run, or did not run to its end.
///
/// *Busy* means that somebody holds the key, and nothing else: an outage is [`Unavailable`], however long the wait.
#[derive(Clone)]
#[non_exhaustive]
pub enum LockError {
    /// Somebody else holds the key and the wait is over.
    Busy(Busy),
    /// The lease ended while it was in use.
    Lost(Lost),
    /// The lock server did not answer, or answered that it cannot work now.
    Unavailable(Unavailable),
    /// Too few of several lock servers answered to decide.
    NoQuorum(NoQuorum),
    /// The task already holds this key, and would wait for itself.
    Reentrant(Reentrant),
    /// The key cannot be used.
    InvalidKey(InvalidKey),
    /// The server refuses a command or the login.
    Permission(Permission),
    /// A setting is wrong; nothing was sent.
    Config(Config),
    /// No lock manager was given.
    NotConfigured(NotConfigured),
    /// The lock manager was shut down.
    Closed(Closed),
}

impl LockError {
    /// Somebody else holds the key.
    pub fn is_busy(&self) -> bool {
        matches!(self, Self::Busy(_))
    }

    /// The lease ended while it was in use.
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost(_))
    }

    /// The same call may succeed a little later, and its body has not run.
    ///
    /// `Lost` is not retryable in this sense: part of the body has run, and only the caller knows whether it may run
    /// again.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Busy(_) | Self::Unavailable(_) | Self::NoQuorum(_))
    }
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy(it) => fmt::Display::fmt(it, f),
            Self::Lost(it) => fmt::Display::fmt(it, f),
            Self::Unavailable(it) => fmt::Display::fmt(it, f),
            Self::NoQuorum(it) => fmt::Display::fmt(it, f),
            Self::Reentrant(it) => fmt::Display::fmt(it, f),
            Self::InvalidKey(it) => fmt::Display::fmt(it, f),
            Self::Permission(it) => fmt::Display::fmt(it, f),
            Self::Config(it) => fmt::Display::fmt(it, f),
            Self::NotConfigured(it) => fmt::Display::fmt(it, f),
            Self::Closed(it) => fmt::Display::fmt(it, f),
        }
    }
}

impl fmt::Debug for LockError {
    /// The variant and its text: what `unwrap` and a `main` that returns the error print must say what to do as well.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy(it) => fmt::Debug::fmt(it, f),
            Self::Lost(it) => fmt::Debug::fmt(it, f),
            Self::Unavailable(it) => fmt::Debug::fmt(it, f),
            Self::NoQuorum(it) => fmt::Debug::fmt(it, f),
            Self::Reentrant(it) => fmt::Debug::fmt(it, f),
            Self::InvalidKey(it) => fmt::Debug::fmt(it, f),
            Self::Permission(it) => fmt::Debug::fmt(it, f),
            Self::Config(it) => fmt::Debug::fmt(it, f),
            Self::NotConfigured(it) => fmt::Debug::fmt(it, f),
            Self::Closed(it) => fmt::Debug::fmt(it, f),
        }
    }
}

impl std::error::Error for LockError {}

/// `Name: text`, for a payload that has a text.
macro_rules! debug_as_text {
    ($name:ident) => {
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), ": {}"), self)
            }
        }
    };
}

/// Declares the shared struct behind a variant: `Name(Arc<NameFacts>)`, cheap to clone, with `From` into [`LockError`].
macro_rules! payload {
    ($(#[$doc:meta])* $name:ident { $($field:ident: $ty:ty),* $(,)? } as $facts:ident) => {
        $(#[$doc])*
        #[derive(Clone)]
        #[non_exhaustive]
        pub struct $name(Arc<$facts>);

        debug_as_text!($name);

        struct $facts { $($field: $ty),* }

        impl From<$name> for LockError {
            fn from(payload: $name) -> Self {
                Self::$name(payload)
            }
        }

        impl std::error::Error for $name {}
    };
}

payload! {
    /// Somebody else holds the key. See [`LockError::Busy`].
    Busy {
        key: Arc<str>,
        holder: Option<Holder>,
        waited: Duration,
        retry_after: Option<Duration>,
        held_for: Option<Duration>,
    } as BusyFacts
}

impl Busy {
    pub(crate) fn new(key: Arc<str>, occupant: Occupant, waited: Duration) -> Self {
        let Occupant { holder, retry_after, held_for } = occupant;
        Self(Arc::new(BusyFacts { key, holder, waited, retry_after, held_for }))
    }

    /// The key, as the caller gave it.
    pub fn key(&self) -> &str {
        &self.0.key
    }

    /// Who holds it, if the holder left a description that can be read.
    pub fn holder(&self) -> Option<&Holder> {
        self.0.holder.as_ref()
    }

    /// How long this call waited.
    pub fn waited(&self) -> Duration {
        self.0.waited
    }

    /// When the key is free at the latest, unless its holder renews it.
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// How long the holder has had it.
    pub fn held_for(&self) -> Option<Duration> {
        self.0.held_for
    }
}

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is held by ", cut(&self.0.key, 36))?;
        match &self.0.holder {
            Some(holder) => write!(f, "{holder}")?,
            None => f.write_str("somebody else")?,
        }
        if let Some(held_for) = self.0.held_for {
            write!(f, " for {}", brief(held_for))?;
        }
        write!(f, "; waited {}, try later or give a longer `wait`", brief(self.0.waited))
    }
}

/// What is known of the lease that stands in the way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Occupant {
    pub(crate) holder: Option<Holder>,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) held_for: Option<Duration>,
}

/// Who holds a lock: host, process, function and since when, as the holder itself wrote it down.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    host: Box<str>,
    pid: u32,
    function: Box<str>,
    since: SystemTime,
    fencing_token: Option<u64>,
}

impl Holder {
    pub(crate) fn new(host: &str, pid: u32, function: &str, since: SystemTime, fencing_token: Option<u64>) -> Self {
        Self { host: host.into(), pid, function: function.into(), since, fencing_token }
    }

    /// Name of the holder's machine.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Process id on that machine.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Path of the annotated function, or the place of a lock taken by hand.
    pub fn function(&self) -> &str {
        &self.function
    }

    /// When the lease was granted, by the lock server's clock.
    pub fn since(&self) -> SystemTime {
        self.since
    }

    /// The lease's [fencing token](crate::Lease::fencing_token): what the resource has seen if the holder was there. `None`
    /// if one of several keys that a task of this process holds together is in the way. Where the key was handed on inside
    /// another process, it is that of the first of those leases, as all of this is.
    pub fn fencing_token(&self) -> Option<u64> {
        self.fencing_token
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Of a path the end says most.
        let chars = self.function.chars().count();
        let skipped = self.function.char_indices().nth(chars.saturating_sub(34)).map_or(0, |(at, _)| at);
        let more = if skipped > 0 { "…" } else { "" };
        write!(f, "{}/{} ({more}{})", cut(&self.host, 24), self.pid, cut(&self.function[skipped..], 34))
    }
}

payload! {
    /// The lease ended while it was in use. See [`LockError::Lost`].
    Lost { key: Arc<str>, held_for: Duration, cause: LossCause } as LostFacts
}

impl Lost {
    pub(crate) fn new(key: Arc<str>, held_for: Duration, cause: LossCause) -> Self {
        Self(Arc::new(LostFacts { key, held_for, cause }))
    }

    /// The key, as the caller gave it.
    pub fn key(&self) -> &str {
        &self.0.key
    }

    /// How long the lease was held before it was lost.
    pub fn held_for(&self) -> Duration {
        self.0.held_for
    }

    /// What ended it.
    pub fn cause(&self) -> LossCause {
        self.0.cause
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LostFacts { key, held_for, cause } = &*self.0;
        write!(f, "the lease on `{}` was lost after {}: {cause}", short(key), brief(*held_for))
    }
}

/// What ended a lease before its holder did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossCause {
    /// Its validity ended and no renewal had been answered in time.
    Expired,
    /// The server has no such key any more.
    Deleted,
    /// The key belongs to somebody else.
    Stolen,
    /// It reached its `max_hold`.
    MaxHold,
    /// The lock manager was shut down.
    Shutdown,
}

impl fmt::Display for LossCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its validity ended before a renewal was answered; check what the body did, and give it a longer `ttl` if the server was reachable",
            Self::Deleted => "the key is gone from the server; check for evictions, FLUSHALL, a failover or a DEL by hand",
            Self::Stolen => "the key belongs to somebody else now; check what the body did",
            Self::MaxHold => "it reached `max_hold`; make the body shorter or `max_hold` longer",
            Self::Shutdown => "the lock manager was shut down; end the work before `shutdown`",
        })
    }
}

payload! {
    /// The lock server did not answer, or cannot work now. See [`LockError::Unavailable`].
    Unavailable { reason: String } as UnavailableFacts
}

impl Unavailable {
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self(Arc::new(UnavailableFacts { reason: reason.into() }))
    }

    /// What happened on the way to the server.
    pub fn reason(&self) -> &str {
        &self.0.reason
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the lock server cannot be used now: {}; try again when it answers", self.0.reason)
    }
}

payload! {
    /// Too few of several lock servers answered. See [`LockError::NoQuorum`].
    NoQuorum { granted: usize, held: usize, failed: usize, problem: String } as NoQuorumFacts
}

impl NoQuorum {
    pub(crate) fn new(granted: usize, held: usize, failed: usize, problem: String) -> Self {
        Self(Arc::new(NoQuorumFacts { granted, held, failed, problem }))
    }

    /// How many servers granted the lock.
    pub fn granted(&self) -> usize {
        self.0.granted
    }

    /// How many said that somebody else holds it.
    pub fn held(&self) -> usize {
        self.0.held
    }

    /// How many did not answer, or could not vote.
    pub fn failed(&self) -> usize {
        self.0.failed
    }
}

impl fmt::Display for NoQuorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NoQuorumFacts { granted, held, failed, problem } = &*self.0;
        write!(
            f,
            "no quorum: granted by {granted} of the lock servers, held on {held}, no vote from {failed} ({problem}); try again when more of them can vote"
        )
    }
}

payload! {
    /// The task already holds this key. See [`LockError::Reentrant`].
    Reentrant { key: Arc<str>, held_at: Box<str> } as ReentrantFacts
}

impl Reentrant {
    pub(crate) fn new(key: Arc<str>, held_at: &str) -> Self {
        Self(Arc::new(ReentrantFacts { key, held_at: held_at.into() }))
    }

    /// The key, as the caller gave it.
    pub fn key(&self) -> &str {
        &self.0.key
    }

    /// The function or place that holds it further up in the same task.
    pub fn held_at(&self) -> &str {
        &self.0.held_at
    }
}

impl fmt::Display for Reentrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ReentrantFacts { key, held_at } = &*self.0;
        write!(
            f,
            "this task already holds `{}` in {held_at} and would wait for itself; lock it once, or allow re-entrance",
            short(key)
        )
    }
}

payload! {
    /// The key cannot be used. See [`LockError::InvalidKey`].
    InvalidKey { key: String, problem: String } as InvalidKeyFacts
}

impl InvalidKey {
    pub(crate) fn new(key: impl Into<String>, problem: impl Into<String>) -> Self {
        Self(Arc::new(InvalidKeyFacts { key: key.into(), problem: problem.into() }))
    }

    /// The key, or the template it was to be built from.
    pub fn key(&self) -> &str {
        &self.0.key
    }

    /// What is wrong with it.
    pub fn problem(&self) -> &str {
        &self.0.problem
    }
}

impl fmt::Display for InvalidKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the lock key `{}` cannot be used: {}", short(&self.0.key), self.0.problem)
    }
}

payload! {
    /// The server refuses a command or the login. See [`LockError::Permission`].
    Permission { needed: String } as PermissionFacts
}

impl Permission {
    pub(crate) fn new(needed: impl Into<String>) -> Self {
        Self(Arc::new(PermissionFacts { needed: needed.into() }))
    }

    /// What the server has to allow.
    pub fn needed(&self) -> &str {
        &self.0.needed
    }
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the lock server refuses: {}", self.0.needed)
    }
}

payload! {
    /// A setting is wrong. See [`LockError::Config`].
    Config { problem: String } as ConfigFacts
}

impl Config {
    pub(crate) fn new(problem: impl Into<String>) -> Self {
        Self(Arc::new(ConfigFacts { problem: problem.into() }))
    }

    /// What is wrong, and what to write instead.
    pub fn problem(&self) -> &str {
        &self.0.problem
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.problem)
    }
}

/// No lock manager was given. See [`LockError::NotConfigured`].
#[derive(Clone)]
#[non_exhaustive]
pub struct NotConfigured {}

debug_as_text!(NotConfigured);

impl From<NotConfigured> for LockError {
    fn from(payload: NotConfigured) -> Self {
        Self::NotConfigured(payload)
    }
}

impl std::error::Error for NotConfigured {}

impl fmt::Display for NotConfigured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no lock manager is set; write `distlock::init(LockManager::connect(\"redis://127.0.0.1:6379\").await?)?` at start-up, or `manager = ...` on the attribute, or `distlock::scope(manager, future)` in a test; a scope does not cover tasks spawned inside it: wrap them in `distlock::scope(distlock::current()?, task)`")
    }
}

/// The lock manager was shut down. See [`LockError::Closed`].
#[derive(Clone)]
#[non_exhaustive]
pub struct Closed {}

debug_as_text!(Closed);

impl From<Closed> for LockError {
    fn from(payload: Closed) -> Self {
        Self::Closed(payload)
    }
}

impl std::error::Error for Closed {}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this lock manager was shut down; build a new one to lock again")
    }
}

/// The longest piece of a key or name that an error text repeats.
const SHOWN: usize = 64;

/// `text`, cut at [`SHOWN`] characters.
fn short(text: &str) -> impl fmt::Display + '_ {
    cut(text, SHOWN)
}

/// `text`, cut at so many characters and with control characters escaped, so that a hostile key cannot flood or forge a log
/// line.
fn cut(text: &str, most: usize) -> impl fmt::Display + '_ {
    struct Cut<'a>(&'a str, usize);
    impl fmt::Display for Cut<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let mut left = self.1;
            for c in self.0.chars() {
                let shown = c.escape_default();
                let width = if c.is_control() { shown.len() } else { 1 };
                let Some(rest) = left.checked_sub(width) else { return f.write_str("…") };
                left = rest;
                if c.is_control() {
                    write!(f, "{shown}")?;
                } else {
                    write!(f, "{c}")?;
                }
            }
            Ok(())
        }
    }
    Cut(text, most)
}

/// A duration as a person reads it: whole milliseconds below ten seconds, tenths of a second above.
pub(crate) fn brief(duration: Duration) -> impl fmt::Display {
    struct Brief(Duration);
    impl fmt::Display for Brief {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            if self.0 < Duration::from_secs(10) {
                write!(f, "{}ms", self.0.as_millis())
            } else {
                write!(f, "{:.1}s", self.0.as_secs_f64())
            }
        }
    }
    Brief(duration)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_small_and_travels() {
        fn travels<T: Send + Sync + Clone + std::error::Error + 'static>() {}
        travels::<LockError>();
        assert!(size_of::<LockError>() <= 24, "{} bytes", size_of::<LockError>());
    }

    #[test]
    fn a_hostile_key_neither_floods_nor_forges_a_text() {
        let (host, function) = ("h".repeat(1_000), format!("{}::claim", "m".repeat(1_000)));
        for key in [format!("a\nb{}", "x".repeat(10_000)), "\u{9f}".repeat(10_000)] {
            let holder = Holder::new(&host, u32::MAX, &function, SystemTime::UNIX_EPOCH, None);
            let held_for = Some(Duration::from_secs(3_000_000_000));
            let occupant = Occupant { holder: Some(holder), retry_after: None, held_for };
            let text = Busy::new(key.into(), occupant, Duration::from_secs(100_000)).to_string();
            assert!(text.chars().count() <= 200, "{} characters: {text}", text.chars().count());
            assert!(!text.chars().any(char::is_control) && text.contains("::claim)"), "{text}");
        }
    }

    #[test]
    fn only_what_has_not_run_is_retryable() {
        let lost = LockError::from(Lost::new("k".into(), Duration::ZERO, LossCause::Expired));
        assert!(!lost.is_retryable() && lost.is_lost());
        assert!(LockError::from(Unavailable::new("gone")).is_retryable());
        assert!(!LockError::from(Config::new("bad")).is_retryable());
    }
}

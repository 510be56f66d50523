//! One line above an async function makes it exclusive across every process that shares a Redis.
//!
//! ```
//! use distlock::{LockError, LockManager, distributed_lock};
//!
//! #[distributed_lock(key = "coupon:{campaign}", ttl = "5s", wait = "300ms")]
//! async fn claim(campaign: u64, buyer: &str) -> Result<String, LockError> {
//!     // Nobody else is in here for this campaign, in any process.
//!     Ok(format!("a coupon of {campaign} for {buyer}"))
//! }
//!
//! # #[tokio::main] async fn main() -> Result<(), LockError> {
//! // Once at start-up; `LockManager::connect("redis://127.0.0.1:6379").await?` on a real server.
//! distlock::init(LockManager::in_memory())?;
//! assert_eq!(claim(7, "ada").await?, "a coupon of 7 for ada");
//! # Ok(()) }
//! ```
//!
//! * [`distributed_lock`] is the attribute: the key template, its options, what it refuses to compile.
//! * [`LockManager`] is the lock service and its settings; [`init`] and [`scope`] say which one functions use.
//! * [`LockManager::lock`] takes locks by hand: `acquire`, `try_acquire`, `run`, `try_run`, `around`.
//! * [`Lease`] is what a holder has in hand, with its [fencing token](Lease::fencing_token).
//! * [`derive@LockKey`] declares a lock as a type that functions share, [`derive@KeySegment`] lets a type of one's own stand in a
//!   key, [`lock_set!`] gives the locks of a crate a namespace, and [`declarations()`] lists them all.
//! * [`LockError`] says why a call did not run, or not to its end, and what to do about it.
//!
//! # What is guaranteed
//!
//! A lease. While it is valid by its own clock, no other distlock client holds one for the same key, provided that the
//! server keeps its data and that its clock and yours do not diverge by more than the configured drift over one ttl. The
//! body is not polled any more when the lease ends; code that runs between two awaits, blocking threads, spawned tasks
//! and requests that were sent already cannot be stopped. Where a second execution would do harm, have the resource
//! refuse fencing tokens that are smaller than one it has seen.
//!
//! # Features
//!
//! * `cluster`: a Redis Cluster, with the URL `redis+cluster://host,host`.
//! * `sentinel`: the primary that Sentinels name, with the URL `redis+sentinel://host,host/name`.
//! * `tls-rustls`: encrypted connections, with `rediss://`.
//! * `testing`: managers over in-process streams, for fault tests under paused time.
//! * `tracing`: sends lost leases, unanswered releases and outages to [`tracing`](https://docs.rs/tracing).
//!
//! There are no metrics and no adapters of frameworks yet: annotate the handlers themselves.

pub use distlock_macros::{KeySegment, LockKey, distributed_lock, lock_set};
pub use distlock_runtime::{
    AsLockManager, Builder, Busy, Closed, Config, Declaration, Finding, FindingKind, Holder, InvalidKey, KeySegment,
    Lease, LeaseHandle, Lock, LockError, LockKey, LockManager, Locked, Login, LossCause, Lost, NoQuorum, NotConfigured,
    OneKey, Outcome, Permission, Reentrant, Release, Renew, Scope, Several, Severity, Shutdown, Tls, Unavailable, Wait,
    assert_declarations, current, declarations, init, scope,
};

/// What the attribute's expansion names. Not for use by hand: it changes with the macro.
#[doc(hidden)]
pub mod __private {
    pub use distlock_runtime::private::*;
}

// The examples of the front page are compiled as well.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(doctest)]
#[doc = include_str!("../docs/keys.md")]
struct Keys;

#[cfg(doctest)]
#[doc = include_str!("../docs/failover.md")]
struct Failover;

#[cfg(doctest)]
#[doc = include_str!("../docs/operations.md")]
struct Operations;

#[cfg(doctest)]
#[doc = include_str!("../docs/redlock.md")]
struct Redlock;

// What only a build sees, for it depends on what a generic function is used with.
/// ```compile_fail,E0080
/// # use distlock::{Lease, LockKey};
/// #[derive(LockKey)]
/// #[lock(key = "a")]
/// struct A;
///
/// #[derive(LockKey)]
/// #[lock(key = "b")]
/// struct B;
///
/// fn not_there(lease: &Lease<(A, ())>) -> u64 {
///     lease.part::<B>().fencing_token()
/// }
/// # fn main() { let _: fn(&Lease<(A, ())>) -> u64 = not_there; }
/// ```
///
/// ```compile_fail,E0080
/// # use distlock::{Lease, LockKey};
/// #[derive(LockKey)]
/// #[lock(key = "a")]
/// struct A;
///
/// fn twice(lease: &Lease<(A, A)>) -> u64 {
///     lease.part::<A>().fencing_token()
/// }
/// # fn main() { let _: fn(&Lease<(A, A)>) -> u64 = twice; }
/// ```
///
/// ```
/// # use distlock::{Lease, LockKey};
/// #[derive(LockKey)]
/// #[lock(key = "pair:{id}")]
/// struct Pair<T> {
///     id: T,
/// }
///
/// fn told_apart(lease: &Lease<(Pair<u8>, Pair<u16>)>) -> u64 {
///     lease.part::<Pair<u16>>().fencing_token()
/// }
/// # fn main() { let _: fn(&Lease<(Pair<u8>, Pair<u16>)>) -> u64 = told_apart; }
/// ```
#[cfg(doctest)]
struct Parts;

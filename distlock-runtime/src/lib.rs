//! The engine of distlock: leases on keys that several processes share, on a Redis or Valkey server or in memory.
//!
//! Users depend on the crate `distlock`, which adds the attribute. This crate knows nothing of it.
//!
//! The way of one call: [`LockManager::lock`] or the attribute makes a call, `acquire` takes it through the process's
//! `gate` to the `store`, a `grant` is watched by the `watchdog` while [`Locked`] polls the body, and `release` gives the
//! key back.

mod acquire;
mod background;
mod builder;
mod clock;
mod current;
mod declarations;
mod error;
mod events;
mod gate;
mod grant;
mod held;
mod key;
mod lease;
mod lock;
mod locked;
mod manager;
mod outcome;
#[doc(hidden)]
pub mod private;
mod release;
mod segment;
mod settings;
mod store;
mod watchdog;

pub use builder::Builder;
pub use current::{AsLockManager, Scope, current, init, scope};
pub use error::{
    Busy, Closed, Config, Holder, InvalidKey, LockError, LossCause, Lost, NoQuorum, NotConfigured, Permission,
    Reentrant, Unavailable,
};
pub use key::LockKey;
pub use lease::{Lease, LeaseHandle};
pub use lock::Lock;
pub use locked::Locked;
pub use manager::{LockManager, Shutdown};
pub use outcome::Outcome;
pub use release::Release;
pub use segment::KeySegment;
pub use settings::{Renew, Wait};

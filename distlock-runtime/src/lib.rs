//! The engine of distlock: leases on keys that several processes share, on a Redis or Valkey server or in memory.
//!
//! Users depend on the crate `distlock`, which adds the attribute. This crate knows nothing of it.
//!
//! One call goes through these rooms:
//!
//! * `lock` (by hand) or `private` (the attribute) says what is wanted; `settings` checks it; `current` finds the manager.
//! * `segment` writes values into a key, `items` goes through a list
//!   of things, `whole` takes a computed key, `key` names the key on a server, `slot` knows where a cluster keeps it.
//! * `locked` is the call as a future: it acquires, polls the body under the deadline, releases.
//! * `acquire` gets the lease: through the process's `gate`, by one `attempt` after the other at the `store`, waiting in
//!   between.
//! * `grant` is a lease inside of the engine, with its deadline and its end; `lease` is what the holder has of it.
//! * `watchdog` renews leases and declares them lost; `held` knows which ones the current task has.
//! * `release` gives keys back, or `hand_on` gives them to the next task of the process;
//!   `background` is where it goes on when nobody waits.
//! * `outcome` turns what became of a call into what its function returns; `error` and `events` tell of it.
//! * `manager` and `builder` put all of that together, `clock` gives it its time; `tls` and `credentials` say how one gets in.
//! * `doctor` judges what a store saw of its servers.
//! * `opaque` keeps the compiler's questions about all of that short.
//! * `declarations` is what a lock can be taken on, with its type; `registry` lists every declaration of the program, and
//!   `contradictions` compares them.

mod acquire;
mod attempt;
mod background;
mod builder;
mod clock;
mod contradictions;
mod credentials;
mod current;
mod declarations;
mod doctor;
mod error;
mod events;
mod gate;
mod grant;
mod hand_on;
mod held;
mod items;
mod key;
mod lease;
mod lock;
mod locked;
mod manager;
mod opaque;
mod outcome;
#[doc(hidden)]
pub mod private;
mod registry;
mod release;
mod segment;
mod service;
mod settings;
#[cfg(feature = "cluster")]
mod slot;
mod store;
mod tls;
mod watchdog;
mod whole;

pub use builder::Builder;
pub use credentials::Login;
pub use current::{AsLockManager, Scope, current, init, scope};
pub use declarations::{LockKey, OneKey, Several};
pub use doctor::{Finding, FindingKind, Severity};
pub use error::{
    Busy, Closed, Config, Holder, InvalidKey, LockError, LossCause, Lost, NoQuorum, NotConfigured, Permission,
    Reentrant, Unavailable,
};
pub use lease::{Lease, LeaseHandle};
pub use lock::Lock;
pub use locked::Locked;
pub use manager::{LockManager, Shutdown};
pub use outcome::Outcome;
pub use registry::{Declaration, assert_declarations, declarations};
pub use release::Release;
pub use segment::KeySegment;
pub use settings::{Renew, Wait};
pub use tls::Tls;

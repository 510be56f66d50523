//! What the tests of distlock, and of programs that use it, need beside the library itself. For development only.
//!
//! * [`Server`]: a real `redis-server` or `valkey-server` of one's own, which can be frozen, killed and restarted.
//!   [`server_or_skip!`] gives one to a test, or reports the test as skipped by name.
//! * [`Cluster`]: three primaries and three replicas, with slots that move and nodes that fail. [`cluster_or_skip!`]
//!   gives one to a test.
//! * [`SentinelSet`]: a primary, replicas and Sentinels, with failovers on demand.
//! * `Certificates` (feature `tls`): an authority of the test's own, for a server with encrypted connections.
//! * [`EmbeddedServer`]: a server inside of the test's own process, with virtual time and faults on demand.
//! * [`FaultProxy`]: the same faults between a client and any server.
//! * [`Connection`], [`Server::command`] and [`Monitor`]: looking behind the library's back.
//! * [`Recorder`]: which process held which key from when to when, written by many processes into one file.
//! * [`dropped_after`]: a future that is given up after so many steps.
//! * [`process`]: a worker process that stops for a while.
//! * [`simulation`]: scenarios under paused time that a seed decides.
//! * [`check`]: reads such a [`History`] and tells whether the lock ever let two in, or a fencing token fell back.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use distlock_testkit::Server;
//!
//! let server = Server::spawn()?;
//! server.command(&["SET", "k", "v"])?;
//! server.pause()?; // clients now see a server that accepts connections and never answers
//! server.resume()?;
//! server.restart_empty()?; // as after a crash without persistence
//! assert!(server.command(&["GET", "k"])?.is_nil());
//! # Ok(())
//! # }
//! ```
//!
//! The crate runs where there are signals and a shared monotonic clock: on Unix.

#![forbid(unsafe_code)]

#[cfg(not(unix))]
compile_error!("`distlock-testkit` freezes and kills servers by signals; use it on a Unix system");

mod binary;
mod cancel;
#[cfg(feature = "tls")]
mod certificates;
mod checker;
mod cluster;
#[cfg(feature = "embedded")]
mod embedded;
mod error;
mod fault;
mod folder;
mod history;
mod monitor;
pub mod process;
mod proxy;
mod reaper;
mod recorder;
mod resp;
mod sentinel;
mod server;
pub mod simulation;
mod skip;
mod wire;

pub use binary::{Missing, SERVER_BIN};
pub use cancel::dropped_after;
#[cfg(feature = "tls")]
pub use certificates::Certificates;
pub use checker::{Report, Violation, check};
pub use cluster::{Cluster, Migration};
#[cfg(feature = "embedded")]
pub use embedded::{EmbeddedBuilder, EmbeddedServer, Executed, ServerClock};
pub use error::{Error, Result};
pub use fault::{Fault, Injected, Match, Refusal};
pub use folder::Folder;
pub use history::{BadLine, Event, Held, History, Moment};
pub use monitor::{Monitor, Seen};
pub use proxy::FaultProxy;
pub use recorder::{Holding, Recorder};
pub use resp::{Connection, Reply};
pub use sentinel::{SentinelBuilder, SentinelSet};
pub use server::{Builder, Server};
pub use skip::{REQUIRE_SERVER, SKIP_LOG};

/// The code in the guide is compiled and run.
#[cfg(all(doctest, feature = "embedded"))]
#[doc = include_str!("../../docs/testing.md")]
mod guide {}

#[doc(hidden)]
pub mod __private {
    //! What the macros of this crate expand to; not for use by hand.
    pub use crate::skip::{cluster, name_of, sentinels, server, servers};
}

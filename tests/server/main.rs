//! What a real server has a say in: the wire, faults, runtimes and processes.
//!
//! Each file is one topic. Without a server these tests are skipped by name; `scripts/test` installs one.

mod doctor;
#[cfg(feature = "tracing")]
mod events;
mod hand_on;
mod login;
mod loss;
mod options;
mod orphans;
mod outage;
mod pauses;
mod processes;
mod refusals;
mod replica_acks;
mod runtimes;
mod scripts;
#[cfg(feature = "tracing")]
mod secrets;
mod security;
mod several;
mod support;
#[cfg(feature = "tls-rustls")]
mod tls;
mod typed;
mod waiting;
mod wire;

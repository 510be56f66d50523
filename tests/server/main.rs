//! What a real server has a say in: the wire, faults, runtimes and processes.
//!
//! Each file is one topic. Without a server these tests are skipped by name; `scripts/test` installs one.

mod loss;
mod orphans;
mod outage;
mod pauses;
mod processes;
mod refusals;
mod runtimes;
mod scripts;
mod support;
mod wire;

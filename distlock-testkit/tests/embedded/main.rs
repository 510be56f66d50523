//! The embedded server as the client crate sees it: over memory under paused time, and over TCP.

mod clients;
mod faults;
mod life;
mod support;

//! The same contract on a real Redis Cluster: keys in all slots, slots that move, nodes that fail.
//!
//! Each file is one topic. Without a server these tests are skipped by name; `scripts/failover-cluster` lets more nodes
//! fail than a plain run does.

mod basics;
mod doctor;
mod failover;
mod login;
mod migration;
mod refusals;
mod replica_acks;
mod support;
#[cfg(feature = "tls-rustls")]
mod tls;
mod waiting;

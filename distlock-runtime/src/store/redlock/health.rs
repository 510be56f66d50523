//! Which of several servers fail, so that whoever runs them hears of it before the next one does.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::events;
use crate::store::StoreError;

/// That of every server.
#[derive(Debug)]
pub(super) struct Health(Box<[OfServer]>);

#[derive(Debug)]
struct OfServer {
    address: String,
    is_failing: AtomicBool,
}

impl Health {
    pub(super) fn new(addresses: impl Iterator<Item = String>) -> Self {
        Self(addresses.map(|address| OfServer { address, is_failing: AtomicBool::new(false) }).collect())
    }

    /// Takes in how a server has answered. What is new is told, once.
    pub(super) fn note(&self, server: usize, error: Option<&StoreError>) {
        let Some(server) = self.0.get(server) else { return };
        let was_failing = server.is_failing.load(Ordering::Relaxed);
        match error {
            Some(error) if !was_failing && !server.is_failing.swap(true, Ordering::Relaxed) => {
                events::server_failed(&server.address, &error.text);
            }
            None if was_failing && server.is_failing.swap(false, Ordering::Relaxed) => {
                events::server_is_back(&server.address);
            }
            _ => {}
        }
    }
}

//! Which of several servers fail, so that whoever runs them hears of it before the next one does.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::events;
use crate::store::StoreError;

/// That of every server.
#[derive(Debug)]
pub(super) struct Health {
    addresses: Box<[String]>,
    are_failing: Box<[AtomicBool]>,
}

impl Health {
    pub(super) fn new(addresses: impl Iterator<Item = String>) -> Self {
        let addresses: Box<[_]> = addresses.collect();
        let are_failing = addresses.iter().map(|_| AtomicBool::new(false)).collect();
        Self { addresses, are_failing }
    }

    /// Where the servers are, without credentials.
    pub(super) fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// Takes in how a server has answered. What is new is told, once.
    pub(super) fn note(&self, server: usize, error: Option<&StoreError>) {
        let (Some(address), Some(is_failing)) = (self.addresses.get(server), self.are_failing.get(server)) else {
            return;
        };
        let was_failing = is_failing.load(Ordering::Relaxed);
        match error {
            Some(error) if !was_failing && !is_failing.swap(true, Ordering::Relaxed) => {
                events::server_failed(address, &error.text);
            }
            None if was_failing && is_failing.swap(false, Ordering::Relaxed) => events::server_is_back(address),
            _ => {}
        }
    }
}

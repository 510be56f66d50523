//! Every form of every option.
#![deny(warnings)]
#![allow(dead_code)]

use std::sync::Arc;
use std::time::Duration;

use distlock::{LockError, LockManager, distributed_lock};

const TTL: Duration = Duration::from_secs(5);

mod config {
    use super::Duration;

    pub const WAIT: Duration = Duration::from_millis(1);
}

#[distributed_lock(key = "a", ttl = TTL, wait = crate::config::WAIT, renew = "1s", max_hold = "1m", min_hold = "10ms")]
async fn constants() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a", ttl = "5s", wait = "0s", renew = off, reentrant = allow)]
async fn words() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a", wait = forever, renew = auto, reentrant = error, on_busy = error, on_error = error, on_lost = cancel,)]
async fn defaults() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "{name}", ttl = ttl, wait = Duration::from_secs(u64::from(n)), renew = ttl / 3, max_hold = ttl * 2, min_hold = ttl.min(TTL))]
async fn computed(ttl: Duration, n: u32, name: String) -> Result<(), LockError> {
    Ok(drop(name))
}

struct App<S> {
    locks: Arc<LockManager>,
    store: S,
}

trait Timed {
    const TTL: Duration;
}

impl<S: Timed> App<S> {
    const WAIT: Duration = Duration::from_secs(1);

    #[distributed_lock(key = "{id}", ttl = S::TTL, wait = Self::WAIT, manager = self.locks)]
    async fn own(&self, id: u32) -> Result<(), LockError> {
        Ok(())
    }

    #[distributed_lock(key = "{id}", manager = &*locks)]
    async fn passed((id, locks): (u32, &LockManager)) -> Result<(), LockError> {
        Ok(())
    }

    #[distributed_lock(key = "{id}", manager = locks.clone())]
    async fn cloned(id: u32, locks: LockManager) -> Result<u32, LockError> {
        Ok(id)
    }
}

fn main() {}

//! A primary that Sentinels name: how it is found, and what a failover costs.
//!
//! Each file is one topic. Without a server these tests are skipped by name. `scripts/failover` runs more failovers; it sets
//! `DISTLOCK_FAILOVERS` to how many of each kind there are.

mod failover;
mod keys;
mod load;
mod resolution;

use std::future::Future;
use std::time::{Duration, Instant};

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The output of `future` and the time it took.
pub(crate) async fn timed<F: Future>(future: F) -> (F::Output, Duration) {
    let begun = Instant::now();
    let output = future.await;
    (output, begun.elapsed())
}

//! Small helpers that several topics need.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use distlock::{LockError, LockManager, LossCause};

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Runs the tasks that are ready until nothing is left to do without the clock.
pub(crate) async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

/// Nobody holds `key`.
pub(crate) async fn assert_free(locks: &LockManager, key: &str) {
    let lease = locks.lock(key).try_acquire().await.unwrap();
    assert!(lease.is_some(), "`{key}` is still taken");
    lease.unwrap().release().await.unwrap();
}

pub(crate) fn cause(error: &LockError) -> LossCause {
    match error {
        LockError::Lost(lost) => lost.cause(),
        other => panic!("not a lost lease: {other:?}"),
    }
}

/// Counts how often something happened.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counter(Arc<AtomicUsize>);

impl Counter {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

//! D2.9: when the key is given back, and what the caller gets.

use std::sync::{Arc, Mutex, OnceLock};

use distlock::{LeaseHandle, LockManager, Release, Renew};
use tokio::time::{Instant, sleep, timeout};

use crate::support::{Counter, assert_free, ms, settle};

#[tokio::test]
async fn a_release_answers_whether_the_key_was_still_ours() {
    let locks = LockManager::in_memory();
    let lease = locks.lock("k").acquire().await.unwrap();
    let handle = lease.handle();
    assert_eq!(lease.release().await.unwrap(), Release::Released);
    assert!(!handle.is_held());
    assert!(handle.ensure_held().unwrap_err().is_lost());
    assert_free(&locks, "k").await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_lost_answers_already_lost() {
    let locks = LockManager::in_memory();
    let lease = locks.lock("k").ttl(ms(100)).renew(Renew::Off).acquire().await.unwrap();
    sleep(ms(200)).await;
    let next = locks.lock("k").acquire().await.unwrap();
    assert_eq!(lease.release().await.unwrap(), Release::AlreadyLost);
    assert!(next.is_held());
    assert!(locks.lock("k").try_acquire().await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn lost_never_comes_after_a_release() {
    let locks = LockManager::in_memory();
    let lease = locks.lock("k").ttl(ms(100)).acquire().await.unwrap();
    let handle = lease.handle();
    lease.release().await.unwrap();
    assert!(timeout(ms(3_600_000), handle.lost()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn min_hold_keeps_the_key_after_a_short_body() {
    let locks = LockManager::in_memory();
    let begun = Instant::now();
    let job = || locks.lock("cron").ttl(ms(300)).min_hold(ms(10_000)).around(sleep(ms(5)));
    job().await.unwrap();
    assert_eq!(begun.elapsed(), ms(5));
    assert!(job().await.unwrap_err().is_busy());
    sleep(ms(9_994)).await;
    assert!(job().await.unwrap_err().is_busy());
    sleep(ms(1)).await;
    job().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn min_hold_is_over_once_the_body_took_longer() {
    let locks = LockManager::in_memory();
    locks.lock("cron").ttl(ms(300)).min_hold(ms(100)).around(sleep(ms(500))).await.unwrap();
    assert_free(&locks, "cron").await;
}

#[tokio::test(start_paused = true)]
async fn min_hold_counts_for_a_dropped_call_too() {
    let locks = LockManager::in_memory();
    let call = locks.lock("cron").ttl(ms(300)).min_hold(ms(10_000)).around(std::future::pending::<()>());
    assert!(timeout(ms(50), call).await.is_err());
    settle().await;
    assert!(locks.lock("cron").try_acquire().await.unwrap().is_none());
    sleep(ms(9_950)).await;
    assert_free(&locks, "cron").await;
}

/// A value that notes whether the lease was still held when it was dropped.
struct Witness {
    name: &'static str,
    lease: Arc<OnceLock<LeaseHandle>>,
    seen: Arc<Mutex<Vec<(&'static str, bool)>>>,
}

impl Drop for Witness {
    fn drop(&mut self) {
        let held = self.lease.get().is_some_and(LeaseHandle::is_held);
        self.seen.lock().unwrap().push((self.name, held));
    }
}

#[tokio::test]
async fn the_key_is_given_back_after_everything_in_the_body_was_dropped() {
    let locks = LockManager::in_memory();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let known = Arc::new(OnceLock::new());
    let witness = |name| Witness { name, lease: known.clone(), seen: seen.clone() };
    let captured = witness("captured");
    locks
        .lock("k")
        .run(async |lease| {
            let _captured = captured;
            let _local = witness("local");
            known.set(lease.handle()).unwrap();
            tokio::task::yield_now().await;
        })
        .await
        .unwrap();
    assert_eq!(*seen.lock().unwrap(), [("local", true), ("captured", true)]);
    assert!(!known.get().unwrap().is_held());
    assert_free(&locks, "k").await;
}

#[tokio::test]
async fn a_panic_in_the_body_gives_the_key_back() {
    let locks = LockManager::in_memory();
    let ran = Counter::default();
    let body_ran = ran.clone();
    let task = tokio::spawn(locks.lock("k").around(async move {
        body_ran.add();
        tokio::task::yield_now().await;
        panic!("the body's own");
    }));
    assert!(task.await.unwrap_err().is_panic());
    assert_eq!(ran.get(), 1);
    assert_free(&locks, "k").await;
}

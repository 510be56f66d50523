//! The settings of a call, each with and without effect, on the in-memory store.

use std::time::Duration;

use distlock::{LockError, LockManager, distributed_lock, scope};
use tokio::time::{Instant, sleep};

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

async fn is_free(locks: &LockManager, key: &str) -> bool {
    let (locks, key) = (locks.clone(), key.to_owned());
    tokio::spawn(async move { locks.lock(&key).try_acquire().await.unwrap().is_some() }).await.unwrap()
}

/// How long the key stays taken from now on.
async fn taken_for(locks: &LockManager, key: &str) -> Duration {
    let begun = Instant::now();
    while !is_free(locks, key).await {
        sleep(Duration::from_millis(100)).await;
    }
    begun.elapsed()
}

fn near(found: Duration, expected: Duration) -> bool {
    found.abs_diff(expected) <= Duration::from_millis(300)
}

#[distributed_lock(key = "k", manager = locks, ttl = "3s")]
async fn short_ttl(locks: &LockManager, body: Duration) -> Result<u64, LockError> {
    sleep(body).await;
    Ok(1)
}

#[distributed_lock(key = "k", manager = locks, ttl = "3s", renew = off)]
async fn not_renewed(locks: &LockManager, body: Duration) -> Result<u64, LockError> {
    sleep(body).await;
    Ok(1)
}

#[distributed_lock(key = "k", manager = locks, ttl = "3s", renew = "500ms")]
async fn often_renewed(locks: &LockManager, body: Duration) -> Result<u64, LockError> {
    sleep(body).await;
    Ok(1)
}

#[distributed_lock(key = "k", manager = locks, ttl = "3s", max_hold = "6s")]
async fn bounded(locks: &LockManager, body: Duration) -> Result<u64, LockError> {
    sleep(body).await;
    Ok(1)
}

#[distributed_lock(key = "k", manager = locks, ttl = "3s", min_hold = "6s")]
async fn job(locks: &LockManager, body: Duration) -> Result<u64, LockError> {
    sleep(body).await;
    Ok(1)
}

#[distributed_lock(key = "k", manager = locks, wait = "2s")]
async fn waits(locks: &LockManager) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", manager = locks, wait = forever)]
async fn waits_forever(locks: &LockManager) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", manager = locks)]
async fn tries_once(locks: &LockManager) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", manager = locks)]
async fn outer(locks: &LockManager, allow: bool) -> Result<(), LockError> {
    if allow { reenters(locks).await } else { stays_out(locks).await }
}

#[distributed_lock(key = "k", manager = locks, wait = "9s", reentrant = allow)]
async fn reenters(locks: &LockManager) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", manager = locks, wait = "9s", reentrant = error)]
async fn stays_out(locks: &LockManager) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k")]
async fn of_the_scope() -> Result<(), LockError> {
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn ttl_is_how_long_the_key_outlives_a_holder_that_dies() {
    let locks = LockManager::in_memory();
    // A holder that is never polled again, with its renewer gone.
    let other = locks.clone();
    let dead = tokio::spawn(async move { not_renewed(&other, s(60)).await });
    tokio::task::yield_now().await;
    tokio::task::yield_now().await;
    assert!(near(taken_for(&locks, "k").await, s(3)));
    assert!(matches!(dead.await.unwrap(), Err(LockError::Lost(_))));
}

#[tokio::test(start_paused = true)]
async fn a_renewed_lease_outlives_its_ttl_and_another_does_not() {
    let locks = LockManager::in_memory();
    assert_eq!(short_ttl(&locks, s(20)).await.unwrap(), 1);
    assert_eq!(often_renewed(&locks, s(20)).await.unwrap(), 1);
    assert!(not_renewed(&locks, s(20)).await.unwrap_err().is_lost());
    assert_eq!(not_renewed(&locks, s(2)).await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn max_hold_ends_a_body_that_takes_longer() {
    let locks = LockManager::in_memory();
    assert_eq!(bounded(&locks, s(5)).await.unwrap(), 1);
    let begun = Instant::now();
    assert!(bounded(&locks, s(20)).await.unwrap_err().is_lost());
    assert!(near(begun.elapsed(), s(6)));
}

#[tokio::test(start_paused = true)]
async fn min_hold_keeps_the_key_of_a_body_that_is_shorter() {
    let locks = LockManager::in_memory();
    job(&locks, s(1)).await.unwrap();
    assert!(near(taken_for(&locks, "k").await, s(5)));
    job(&locks, s(7)).await.unwrap();
    assert!(is_free(&locks, "k").await);
}

#[tokio::test(start_paused = true)]
async fn wait_is_how_long_a_call_tries() {
    let locks = LockManager::in_memory();
    let held = locks.lock("k").acquire().await.unwrap();
    let begun = Instant::now();
    assert!(tries_once(&locks).await.unwrap_err().is_busy());
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert!(waits(&locks).await.unwrap_err().is_busy());
    assert!(near(begun.elapsed(), s(2)));
    let (waiting, ()) = tokio::join!(waits_forever(&locks), async {
        sleep(s(3600)).await;
        held.release().await.unwrap();
    });
    waiting.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_task_enters_its_own_lock_only_where_it_is_allowed() {
    let locks = LockManager::in_memory();
    outer(&locks, true).await.unwrap();
    assert!(matches!(outer(&locks, false).await, Err(LockError::Reentrant(_))));
    assert!(is_free(&locks, "k").await);
}

#[tokio::test]
async fn the_named_manager_is_used_whatever_the_scope_says() {
    let (inner, outer) = (LockManager::in_memory(), LockManager::in_memory());
    let _held = inner.lock("k").acquire().await.unwrap();
    assert!(scope(outer.clone(), tries_once(&inner)).await.unwrap_err().is_busy());
    scope(outer.clone(), of_the_scope()).await.unwrap();
    assert!(scope(inner, of_the_scope()).await.unwrap_err().is_busy());
    assert!(matches!(of_the_scope().await, Err(LockError::NotConfigured(_))));
}

//! What becomes of the key after the body: given back, or kept by nobody so that the same work is not done twice.

use std::time::Duration;

use distlock::{LockError, LockManager, distributed_lock};
use tokio::time::sleep;

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const DAY: Duration = s(24 * 60 * 60);

async fn is_free(locks: &LockManager, key: &str) -> bool {
    kept(locks, key).await.is_zero()
}

/// For how long the key cannot be had from now on.
async fn kept(locks: &LockManager, key: &str) -> Duration {
    let (locks, key) = (locks.clone(), key.to_owned());
    // In a task of its own, where no body of this one holds anything.
    let asked = tokio::spawn(async move {
        match locks.lock(&key).acquire().await {
            Ok(_) => Duration::ZERO,
            Err(LockError::Busy(busy)) => busy.retry_after().unwrap(),
            Err(other) => panic!("{other}"),
        }
    });
    asked.await.unwrap()
}

/// That the key is kept for this long and not longer.
async fn kept_for(locks: &LockManager, key: &str, time: Duration) {
    assert_eq!(kept(locks, key).await, time);
    sleep(time.saturating_sub(Duration::from_millis(1))).await;
    assert!(time.is_zero() || !is_free(locks, key).await);
    sleep(Duration::from_millis(1)).await;
    assert!(is_free(locks, key).await);
}

type Answer = Result<u8, LockError>;

/// What the body of a function here does.
#[derive(Clone, Copy)]
enum Body {
    Ok,
    Err,
    Panic,
    Pending,
    /// Gives `Ok` after this time.
    After(Duration),
}

impl Body {
    async fn run(self) -> Answer {
        match self {
            Self::Ok => Ok(1),
            Self::Err => Err(LockManager::builder().url("").lazy().build().await.unwrap_err()),
            Self::Panic => panic!("on purpose"),
            Self::Pending => std::future::pending().await,
            Self::After(time) => {
                sleep(time).await;
                Ok(1)
            }
        }
    }
}

#[distributed_lock(key = "k", manager = locks, after_ok = keep("1h"))]
async fn once(locks: &LockManager, body: Body) -> Answer {
    body.run().await
}

#[distributed_lock(key = "k", manager = locks, after_err = keep(DAY))]
async fn backs_off(locks: &LockManager, body: Body) -> Answer {
    body.run().await
}

#[distributed_lock(key = "k", manager = locks, after_ok = keep(time), after_err = keep(time * 2))]
async fn both(locks: &LockManager, body: Body, time: Duration) -> Answer {
    body.run().await
}

#[distributed_lock(key = "k", manager = locks, after_ok = release, after_err = release)]
async fn neither(locks: &LockManager, body: Body) -> Answer {
    body.run().await
}

#[distributed_lock(key = "k", manager = locks, min_hold = "10s", after_ok = keep(time))]
async fn at_least(locks: &LockManager, time: Duration) -> Answer {
    Ok(1)
}

#[distributed_lock(key = "k", manager = locks, ttl = "1s", max_hold = "2s", after_ok = keep("1h"), on_lost = finish)]
async fn lost(locks: &LockManager, body: Body) -> Answer {
    body.run().await
}

#[distributed_lock(keys = ["a", "b"], manager = locks, after_ok = keep("1h"))]
async fn of_several(locks: &LockManager) -> Answer {
    Ok(1)
}

#[distributed_lock(key = "k", manager = locks)]
async fn outer(locks: &LockManager) -> Answer {
    inner(locks).await
}

#[distributed_lock(key = "k", manager = locks, reentrant = allow, after_ok = keep("1h"))]
async fn inner(locks: &LockManager) -> Answer {
    Ok(1)
}

#[distributed_lock(key = "k", manager = locks, on_busy = skip, after_ok = keep("1h"))]
async fn skipped(locks: &LockManager) -> Result<Option<u8>, LockError> {
    Ok(Some(1))
}

#[tokio::test(start_paused = true)]
async fn a_key_is_kept_after_what_the_options_say_and_after_nothing_else() {
    let locks = LockManager::in_memory();
    once(&locks, Body::Ok).await.unwrap();
    assert!(once(&locks, Body::Ok).await.unwrap_err().is_busy());
    kept_for(&locks, "k", s(3600)).await;
    once(&locks, Body::Err).await.unwrap_err();
    kept_for(&locks, "k", s(0)).await;
    backs_off(&locks, Body::Ok).await.unwrap();
    kept_for(&locks, "k", s(0)).await;
    assert!(matches!(backs_off(&locks, Body::Err).await, Err(LockError::Config(_))));
    kept_for(&locks, "k", DAY).await;
    both(&locks, Body::Ok, s(30)).await.unwrap();
    kept_for(&locks, "k", s(30)).await;
    both(&locks, Body::Err, s(30)).await.unwrap_err();
    kept_for(&locks, "k", s(60)).await;
    for body in [Body::Ok, Body::Err] {
        let _ = neither(&locks, body).await;
        kept_for(&locks, "k", s(0)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_longer_of_min_hold_and_keep_counts() {
    let locks = LockManager::in_memory();
    at_least(&locks, s(2)).await.unwrap();
    kept_for(&locks, "k", s(10)).await;
    at_least(&locks, s(20)).await.unwrap();
    kept_for(&locks, "k", s(20)).await;
}

#[tokio::test(start_paused = true)]
async fn a_time_that_cannot_be_kept_locks_nothing() {
    let locks = LockManager::in_memory();
    for time in [s(0), DAY + s(1), DAY / 2 + s(1)] {
        let answer = both(&locks, Body::Ok, time).await;
        assert!(matches!(answer, Err(LockError::Config(_))), "{time:?}: {answer:?}");
        assert!(is_free(&locks, "k").await);
    }
    both(&locks, Body::Ok, DAY / 2).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_keeps_nothing() {
    let locks = LockManager::in_memory();
    assert_eq!(lost(&locks, Body::After(s(1))).await.unwrap(), 1);
    kept_for(&locks, "k", s(3600)).await;
    // The body runs on to its `Ok`, long after its lease ended.
    assert_eq!(lost(&locks, Body::After(s(9))).await.unwrap(), 1);
    kept_for(&locks, "k", s(0)).await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_and_a_call_that_is_dropped_keep_nothing() {
    let locks = LockManager::in_memory();
    let other = locks.clone();
    assert!(tokio::spawn(async move { both(&other, Body::Panic, s(60)).await }).await.unwrap_err().is_panic());
    kept_for(&locks, "k", s(0)).await;
    assert!(tokio::time::timeout(s(5), both(&locks, Body::Pending, s(60))).await.is_err());
    assert!(is_free(&locks, "k").await);
}

#[tokio::test(start_paused = true)]
async fn all_of_several_keys_are_kept() {
    let locks = LockManager::in_memory();
    of_several(&locks).await.unwrap();
    assert!(!is_free(&locks, "a").await && !is_free(&locks, "b").await);
    kept_for(&locks, "a", s(3600)).await;
    assert!(is_free(&locks, "b").await);
}

#[tokio::test(start_paused = true)]
async fn of_calls_inside_each_other_the_outermost_decides() {
    let locks = LockManager::in_memory();
    outer(&locks).await.unwrap();
    kept_for(&locks, "k", s(0)).await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_finds_the_key_kept_is_busy() {
    let locks = LockManager::in_memory();
    assert_eq!(skipped(&locks).await.unwrap(), Some(1));
    assert_eq!(skipped(&locks).await.unwrap(), None);
    kept_for(&locks, "k", s(3600)).await;
}

//! D2.6 to D2.8: the deadline, the watchdog, and what losing a lease does.

use std::time::Duration;

use distlock::{LockError, LockManager, LossCause, Renew};
use tokio::time::{Instant, sleep};

use crate::support::{Counter, assert_free, cause, ms, settle};

#[tokio::test(start_paused = true)]
async fn a_held_lease_is_renewed_for_as_long_as_the_body_runs() {
    let locks = LockManager::in_memory();
    let lease = locks.lock("k").ttl(ms(300)).acquire().await.unwrap();
    for _ in 0..3600 {
        sleep(ms(1000)).await;
        assert!(lease.remaining() >= ms(180), "{:?}", lease.remaining());
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_outlives_its_lease_is_dropped_at_the_deadline() {
    let locks = LockManager::in_memory();
    let (begun, steps) = (Instant::now(), Counter::default());
    let body_steps = steps.clone();
    let out = locks
        .lock("k")
        .ttl(ms(300))
        .renew(Renew::Off)
        .run(async move |_| {
            loop {
                body_steps.add();
                sleep(ms(10)).await;
            }
        })
        .await;
    let error: LockError = out.map(|(): ()| ()).unwrap_err();
    assert_eq!(cause(&error), LossCause::Expired);
    // ttl − (1 % of it + 2 ms)
    assert_eq!(begun.elapsed(), ms(295));
    assert_eq!(steps.get(), 30);
    settle().await;
    assert_free(&locks, "k").await;
}

#[tokio::test(start_paused = true)]
async fn a_body_that_ends_after_its_deadline_is_a_lost_lease_and_no_quiet_success() {
    let locks = LockManager::in_memory();
    let out = locks
        .lock("k")
        .ttl(ms(300))
        .run(async |_| {
            // One step that passes the deadline, as blocking code would; the watchdog cannot come in between.
            tokio::time::advance(ms(900)).await;
        })
        .await;
    assert!(out.unwrap_err().is_lost());
}

#[tokio::test(start_paused = true)]
async fn the_loss_is_told_at_the_deadline_without_anybody_polling_the_body() {
    let locks = LockManager::in_memory();
    let lease = locks.lock("k").ttl(ms(1000)).renew(Renew::Off).acquire().await.unwrap();
    let (handle, begun) = (lease.handle(), Instant::now());
    let told = tokio::spawn(async move { (handle.lost().await, begun.elapsed()) });
    let (lost, after) = told.await.unwrap();
    assert_eq!((lost.key(), lost.cause()), ("k", LossCause::Expired));
    assert_eq!(after, ms(988));
    assert_eq!(lost.held_for(), ms(988));
    // At once when it is lost already, on the lease itself too.
    assert_eq!(lease.lost().await.cause(), LossCause::Expired);
    assert!(!lease.is_held());
    assert_eq!(lease.remaining(), Duration::ZERO);
    assert_eq!(cause(&lease.ensure_held().unwrap_err()), LossCause::Expired);
}

#[tokio::test(start_paused = true)]
async fn max_hold_ends_a_lease_exactly_then_and_frees_the_key() {
    let locks = LockManager::in_memory();
    let begun = Instant::now();
    let out = locks.lock("k").ttl(ms(300)).max_hold(ms(1000)).run(async |_| sleep(ms(9000)).await).await;
    assert_eq!(cause(&out.unwrap_err()), LossCause::MaxHold);
    assert_eq!(begun.elapsed(), ms(1000));
    settle().await;
    assert_free(&locks, "k").await;
    // A leaked lease cannot hold on either.
    std::mem::forget(locks.lock("k").ttl(ms(300)).max_hold(ms(1000)).acquire().await.unwrap());
    sleep(ms(1001)).await;
    assert_free(&locks, "k").await;
}

#[tokio::test(start_paused = true)]
async fn extend_prolongs_and_never_shortens() {
    let locks = LockManager::in_memory();
    let lease = locks.lock("k").ttl(ms(300)).renew(Renew::Off).acquire().await.unwrap();
    lease.extend(ms(5000)).await.unwrap();
    assert_eq!(lease.remaining(), ms(4948));
    lease.extend(ms(100)).await.unwrap();
    assert_eq!(lease.remaining(), ms(4948));
    sleep(ms(4000)).await;
    assert!(lease.is_held());
    assert!(locks.lock("k").try_acquire().await.unwrap().is_none());
    sleep(ms(2000)).await;
    assert!(lease.extend(ms(1000)).await.unwrap_err().is_lost());
    assert_free(&locks, "k").await;
}

#[tokio::test(start_paused = true)]
async fn a_ttl_that_no_lease_can_have_is_refused_by_extend() {
    let locks = LockManager::in_memory();
    let lease = locks.lock("k").acquire().await.unwrap();
    for ttl in [Duration::ZERO, ms(9), Duration::MAX] {
        let refused = lease.extend(ttl).await.unwrap_err();
        assert!(matches!(refused, LockError::Config(_)), "{refused:?}");
    }
    assert!(lease.is_held());
}

#[tokio::test(start_paused = true)]
async fn the_drift_of_the_manager_decides_how_much_of_a_ttl_counts() {
    for (drift, expected) in [(0.0, 998), (0.01, 988), (0.1, 898)] {
        let locks = LockManager::builder().url("memory:").drift(drift).build().await.unwrap();
        let lease = locks.lock("k").ttl(ms(1000)).acquire().await.unwrap();
        assert_eq!(lease.remaining(), ms(expected));
    }
}

#[tokio::test(start_paused = true)]
async fn a_grace_keeps_the_key_of_a_lost_lease_from_the_next_holder() {
    let locks = LockManager::builder().url("memory:").grace(ms(500)).build().await.unwrap();
    let other = locks.clone();
    // Nobody gives this key back: its runtime is frozen as far as the store can tell.
    std::mem::forget(locks.lock("k").ttl(ms(1000)).renew(Renew::Off).acquire().await.unwrap());
    // The deadline is at 988 ms; what the holder does until the key may be taken again is its own affair.
    sleep(ms(1200)).await;
    assert!(other.lock("k").try_acquire().await.unwrap().is_none());
    sleep(ms(300)).await;
    assert!(other.lock("k").try_acquire().await.unwrap().is_some());
}

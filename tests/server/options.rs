//! Options of the attribute that reach a real server: what they do there, and what happens without them.

use std::time::Duration;

use distlock::{LockError, LockManager, distributed_lock};
use distlock_testkit::server_or_skip;

use crate::support::{ask, cause, exists, manager, ms, timed};

#[distributed_lock(key = "kept:{id}", ttl = "2s", manager = locks, after_ok = keep("1h"), after_err = keep(err))]
async fn kept(locks: &LockManager, id: u64, err: Duration, ok: bool) -> Result<(), LockError> {
    if ok { Ok(()) } else { Err(LockManager::builder().url("").lazy().build().await.unwrap_err()) }
}

#[distributed_lock(key = "given:{id}", ttl = "2s", manager = locks)]
async fn given_back(locks: &LockManager, id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "job", ttl = "2s", manager = locks, min_hold = "30s", after_ok = keep(keep))]
async fn job(locks: &LockManager, keep: Duration) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "bounded", ttl = "300ms", max_hold = "600ms", manager = locks)]
async fn bounded(locks: &LockManager, body: Duration) -> Result<(), LockError> {
    tokio::time::sleep(body).await;
    Ok(())
}

#[distributed_lock(key = "entered", manager = locks)]
async fn outer(locks: &LockManager, allow: bool) -> Result<(), LockError> {
    if allow { inner(locks).await } else { refused(locks).await }
}

#[distributed_lock(key = "entered", reentrant = allow, after_ok = keep("1h"), manager = locks)]
async fn inner(locks: &LockManager) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "entered", wait = "10s", manager = locks)]
async fn refused(locks: &LockManager) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(keys(for id in &ids => "{{shop}}:{id}"), manager = locks, after_ok = keep("1h"))]
async fn each(locks: &LockManager, ids: Vec<u64>) -> Result<(), LockError> {
    Ok(())
}

/// How long a key has still to live.
fn left(server: &distlock_testkit::Server, key: &str) -> Duration {
    ms(u64::try_from(ask(server, &["PTTL", key]).as_int().unwrap()).unwrap())
}

#[tokio::test]
async fn a_key_is_kept_on_the_server_and_found_taken_by_other_processes() {
    let server = server_or_skip!();
    let (locks, others) = (manager(&server).await, manager(&server).await);
    kept(&locks, 1, ms(60_000), true).await.unwrap();
    let rest = left(&server, "distlock:kept:1");
    assert!(ms(3_590_000) < rest && rest <= ms(3_600_000), "{rest:?}");
    let LockError::Busy(busy) = kept(&others, 1, ms(60_000), true).await.unwrap_err() else { panic!() };
    assert!(busy.retry_after().unwrap() > ms(3_500_000));
    assert!(busy.holder().unwrap().function().contains("kept"));
    assert!(matches!(kept(&locks, 2, ms(60_000), false).await, Err(LockError::Config(_))));
    let rest = left(&server, "distlock:kept:2");
    assert!(ms(50_000) < rest && rest <= ms(60_000), "{rest:?}");
    given_back(&locks, 1).await.unwrap();
    assert!(!exists(&server, "distlock:given:1"));
}

#[tokio::test]
async fn a_key_is_kept_for_the_longer_of_min_hold_and_keep() {
    let server = server_or_skip!();
    let locks = manager(&server).await;
    job(&locks, ms(1000)).await.unwrap();
    let rest = left(&server, "distlock:job");
    assert!(ms(25_000) < rest && rest <= ms(30_000), "{rest:?}");
    ask(&server, &["DEL", "distlock:job"]);
    job(&locks, ms(90_000)).await.unwrap();
    assert!(left(&server, "distlock:job") > ms(80_000));
}

#[tokio::test]
async fn nobody_renews_a_key_that_is_kept() {
    let server = server_or_skip!();
    let locks = manager(&server).await;
    kept(&locks, 1, ms(700), false).await.unwrap_err();
    // Three renewals would have been due on a lease of this length.
    tokio::time::sleep(ms(400)).await;
    assert!(left(&server, "distlock:kept:1") <= ms(300));
    let (free, _) = timed(locks.lock("kept:1").wait(ms(2000)).acquire()).await;
    free.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_lease_taken_away_keeps_nothing() {
    let server = server_or_skip!();
    let locks = manager(&server).await;
    let stealing = async {
        tokio::time::sleep(ms(50)).await;
        ask(&server, &["SET", "distlock:bounded", "thief", "PX", "400"]);
    };
    let (out, ()) = tokio::join!(bounded(&locks, ms(5000)), stealing);
    out.unwrap_err();
    assert!(left(&server, "distlock:bounded") <= ms(400));
}

#[tokio::test]
async fn max_hold_ends_a_body_and_frees_the_key_on_the_server() {
    let server = server_or_skip!();
    let locks = manager(&server).await;
    bounded(&locks, ms(450)).await.unwrap();
    let (out, took) = timed(bounded(&locks, ms(5000))).await;
    assert_eq!(cause(&out.unwrap_err()), distlock::LossCause::MaxHold);
    assert!(ms(550) <= took && took < ms(3000), "{took:?}");
    crate::support::until("the key goes", ms(1000), || !exists(&server, "distlock:bounded")).await;
}

#[tokio::test]
async fn a_task_enters_its_own_lock_without_the_server_only_where_it_is_allowed() {
    let server = server_or_skip!();
    let locks = manager(&server).await;
    outer(&locks, true).await.unwrap();
    assert!(!exists(&server, "distlock:entered"), "the inner call decided about the key");
    let mut log = server.monitor().unwrap();
    let (out, took) = timed(outer(&locks, false)).await;
    assert!(matches!(out, Err(LockError::Reentrant(_))));
    assert!(took < ms(5000), "it waited for itself");
    assert_eq!(log.sent().unwrap().len(), 2);
}

#[tokio::test]
async fn each_thing_of_a_list_is_kept() {
    let server = server_or_skip!();
    let locks = manager(&server).await;
    each(&locks, vec![2, 1, 2]).await.unwrap();
    assert!(left(&server, "distlock:{shop}:1") > ms(3_500_000));
    assert!(left(&server, "distlock:{shop}:2") > ms(3_500_000));
    let LockError::Busy(busy) = each(&locks, vec![3, 1]).await.unwrap_err() else { panic!() };
    assert_eq!(busy.key(), "{shop}:1");
    assert!(!exists(&server, "distlock:{shop}:3"));
    assert!(matches!(each(&locks, vec![]).await, Err(LockError::InvalidKey(_))));
}

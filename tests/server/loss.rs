//! D2.6 to D2.8 against a server: renewal, theft, deletion, silence.

use std::time::Instant;

use distlock::{LossCause, Release, Renew};
use distlock_testkit::{Reply, server_or_skip};

use crate::support::{ask, cause, exists, impatient, manager, ms, timed, until};

#[tokio::test]
async fn a_deleted_key_is_a_lost_lease_at_the_next_renewal_and_is_not_made_again() {
    let server = server_or_skip!();
    let locks = manager(&server).await;
    let lease = locks.lock("k").ttl(ms(600)).acquire().await.unwrap();
    ask(&server, &["DEL", "distlock:k"]);
    let (lost, took) = timed(lease.lost()).await;
    assert_eq!(lost.cause(), LossCause::Deleted);
    assert!(took < ms(350), "{took:?}");
    let mut log = server.monitor().unwrap();
    assert_eq!(lease.release().await.unwrap(), Release::AlreadyLost);
    assert!(log.sent().unwrap().is_empty(), "a lease that the server has disowned sends no release");
    assert!(!exists(&server, "distlock:k"));
}

#[tokio::test]
async fn a_stolen_key_is_a_lost_lease_and_stays_the_thief_s() {
    let server = server_or_skip!();
    let locks = manager(&server).await;
    let call = locks.lock("k").ttl(ms(600)).run(async |_| {
        ask(&server, &["SET", "distlock:k", "thief", "PX", "5000"]);
        std::future::pending::<()>().await;
    });
    let (out, took) = timed(call).await;
    assert_eq!(cause(&out.unwrap_err()), LossCause::Stolen);
    assert!(took < ms(350), "{took:?}");
    assert_eq!(ask(&server, &["GET", "distlock:k"]), Reply::Text("thief".into()));
    assert!(ask(&server, &["PTTL", "distlock:k"]).as_int().unwrap() > 4000);
}

#[tokio::test]
async fn extend_never_takes_back_what_is_not_ours() {
    let server = server_or_skip!();
    let locks = manager(&server).await;
    let absent = locks.lock("a").acquire().await.unwrap();
    ask(&server, &["DEL", "distlock:a"]);
    assert_eq!(cause(&absent.extend(ms(60_000)).await.unwrap_err()), LossCause::Deleted);
    assert!(!exists(&server, "distlock:a"));
    let stolen = locks.lock("b").acquire().await.unwrap();
    ask(&server, &["SET", "distlock:b", "thief", "PX", "5000"]);
    assert_eq!(cause(&stolen.extend(ms(60_000)).await.unwrap_err()), LossCause::Stolen);
    assert!(ask(&server, &["PTTL", "distlock:b"]).as_int().unwrap() <= 5000);
    assert!(!stolen.is_held() && !absent.is_held());
    drop((stolen, absent));
    assert_eq!(ask(&server, &["GET", "distlock:b"]), Reply::Text("thief".into()));
}

#[tokio::test]
async fn a_frozen_server_cannot_hide_the_deadline() {
    let server = server_or_skip!();
    let locks = impatient(&server).build().await.unwrap();
    let lease = locks.lock("k").ttl(ms(600)).acquire().await.unwrap();
    let remaining = lease.remaining();
    server.pause().unwrap();
    let (lost, took) = timed(lease.lost()).await;
    server.resume().unwrap();
    assert_eq!(lost.cause(), LossCause::Expired);
    assert!(took >= remaining - ms(5) && took < remaining + ms(50), "{took:?} of {remaining:?}");
}

#[tokio::test]
async fn a_body_is_dropped_at_the_deadline_of_a_frozen_server_and_the_key_is_freed_when_it_thaws() {
    let server = server_or_skip!();
    let locks = impatient(&server).build().await.unwrap();
    let mut last_step = Instant::now();
    let begun = Instant::now();
    let out = locks
        .lock("k")
        .ttl(ms(500))
        .run(async |_| {
            server.pause().unwrap();
            loop {
                last_step = Instant::now();
                tokio::time::sleep(ms(1)).await;
            }
        })
        .await;
    server.resume().unwrap();
    let error = out.map(|(): ()| ()).unwrap_err();
    assert_eq!(cause(&error), LossCause::Expired);
    assert!(last_step - begun <= ms(495), "{:?}", last_step - begun);
    until("the key is gone", ms(1000), || !exists(&server, "distlock:k")).await;
}

#[tokio::test]
async fn a_renewal_that_is_not_answered_is_tried_again_inside_the_lease() {
    let server = server_or_skip!();
    let locks = impatient(&server).build().await.unwrap();
    let lease = locks.lock("k").ttl(ms(1500)).acquire().await.unwrap();
    for _ in 0..3 {
        // Long enough for the renewal at ttl/3 to fail, short enough for another one to come.
        tokio::time::sleep(ms(300)).await;
        server.pause().unwrap();
        tokio::time::sleep(ms(500)).await;
        server.resume().unwrap();
        until("renewed", ms(1000), || lease.remaining() > ms(1100)).await;
    }
    assert!(lease.is_held());
}

#[tokio::test]
async fn a_connection_that_was_cut_and_a_script_cache_that_was_flushed_lose_no_lease() {
    let server = server_or_skip!();
    let locks = manager(&server).await;
    let lease = locks.lock("k").ttl(ms(300)).acquire().await.unwrap();
    for _ in 0..10 {
        ask(&server, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        ask(&server, &["SCRIPT", "FLUSH"]);
        let before = server.calls("pexpire").unwrap();
        until("renewed", ms(300), || server.calls("pexpire").unwrap() > before).await;
    }
    assert!(exists(&server, "distlock:k"));
    assert_eq!(lease.release().await.unwrap_or(Release::Released), Release::Released);
    until("the key is gone", ms(1000), || !exists(&server, "distlock:k")).await;
}

#[tokio::test]
async fn a_server_that_restarts_empty_ends_the_lease_at_the_next_renewal() {
    let server = server_or_skip!();
    let locks = manager(&server).await;
    let lease = locks.lock("k").ttl(ms(1500)).acquire().await.unwrap();
    server.restart_empty().unwrap();
    let (lost, took) = timed(lease.lost()).await;
    assert_eq!(lost.cause(), LossCause::Deleted);
    assert!(took < ms(1200), "{took:?}");
}

#[tokio::test]
async fn without_renewal_the_lease_ends_after_one_ttl_and_sends_no_renewal() {
    let server = server_or_skip!();
    let locks = manager(&server).await;
    locks.lock("k").run(async |_| ()).await.unwrap();
    let mut log = server.monitor().unwrap();
    let (out, took) =
        timed(locks.lock("k").ttl(ms(300)).renew(Renew::Off).run(async |_| tokio::time::sleep(ms(900)).await)).await;
    assert_eq!(cause(&out.unwrap_err()), LossCause::Expired);
    assert!(took >= ms(290) && took < ms(345), "{took:?}");
    until("the key is gone", ms(1000), || !exists(&server, "distlock:k")).await;
    assert!(!log.seen().unwrap().iter().any(|seen| seen.name() == "PEXPIRE"));
}

#[tokio::test]
async fn no_renewal_is_sent_after_a_release() {
    let server = server_or_skip!();
    let locks = manager(&server).await;
    let lease = locks.lock("k").ttl(ms(60)).acquire().await.unwrap();
    until("renewed", ms(1000), || server.calls("pexpire").unwrap() > 0).await;
    lease.release().await.unwrap();
    let mut log = server.monitor().unwrap();
    tokio::time::sleep(ms(200)).await;
    assert!(log.sent().unwrap().is_empty());
}

#[tokio::test]
async fn the_validity_counts_from_the_sending_and_not_from_the_reply() {
    let server = server_or_skip!();
    let locks = manager(&server).await;
    locks.lock("k").run(async |_| ()).await.unwrap();
    server.pause().unwrap();
    let acquiring =
        tokio::spawn(async move { (locks.lock("k").ttl(ms(2000)).acquire().await.unwrap(), Instant::now()) });
    tokio::time::sleep(ms(300)).await;
    server.resume().unwrap();
    let (lease, _) = acquiring.await.unwrap();
    assert!(lease.remaining() <= ms(1690), "{:?}", lease.remaining());
    // The same for a renewal, whose answer is late this time.
    server.pause().unwrap();
    let handle = lease.handle();
    let extending = tokio::spawn(async move { (lease.extend(ms(10_000)).await.unwrap(), lease) });
    tokio::time::sleep(ms(300)).await;
    server.resume().unwrap();
    let ((), _lease) = extending.await.unwrap();
    assert!(handle.remaining() > ms(2000) && handle.remaining() <= ms(9610), "{:?}", handle.remaining());
}

#[tokio::test]
async fn a_grant_of_which_little_is_left_is_given_back_and_counts_as_not_acquired() {
    let server = server_or_skip!();
    let locks = manager(&server).await;
    locks.lock("k").run(async |_| ()).await.unwrap();
    server.pause().unwrap();
    let acquiring = tokio::spawn(locks.lock("k").ttl(ms(300)).around(async {}));
    tokio::time::sleep(ms(290)).await;
    server.resume().unwrap();
    let error = acquiring.await.unwrap().unwrap_err();
    assert!(matches!(error, distlock::LockError::Unavailable(_)), "{error:?}");
    until("the key is gone", ms(100), || !exists(&server, "distlock:k")).await;
}

//! A server that is down, comes back, or is somewhere else.

use distlock::{LockError, LockManager};
use distlock_testkit::server_or_skip;

use crate::support::{ask, impatient, manager, ms, timed};

#[tokio::test]
async fn connecting_to_nothing_is_unavailable_and_lazy_is_not() {
    let server = server_or_skip!();
    server.kill().unwrap();
    let (refused, took) = timed(LockManager::connect(server.url())).await;
    assert!(matches!(refused.unwrap_err(), LockError::Unavailable(_)));
    assert!(took < ms(1200), "{took:?}");
    let lazy = LockManager::builder().url(server.url()).lazy().build().await.unwrap();
    assert!(matches!(lazy.lock("k").acquire().await.unwrap_err(), LockError::Unavailable(_)));
    server.restart_empty().unwrap();
    lazy.lock("k").wait(ms(1000)).acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn calls_during_an_outage_fail_within_their_budget_and_the_first_one_after_it_succeeds() {
    let server = server_or_skip!();
    let locks = manager(&server).await;
    locks.lock("k").run(async |_| ()).await.unwrap();
    server.kill().unwrap();
    for same_key in [true, false] {
        let calls: Vec<_> = (0..20)
            .map(|number| {
                let key = if same_key { "k".to_owned() } else { format!("k{number}") };
                tokio::spawn(timed(locks.lock(key).wait(ms(300)).around(async {})))
            })
            .collect();
        for call in calls {
            let (out, took) = call.await.unwrap();
            assert!(matches!(out.unwrap_err(), LockError::Unavailable(_)));
            assert!(took <= ms(350), "{took:?}");
        }
    }
    let (out, took) = timed(locks.lock("k").acquire()).await;
    assert!(matches!(out.unwrap_err(), LockError::Unavailable(_)));
    assert!(took < ms(600), "{took:?}");
    server.restart_empty().unwrap();
    let (out, took) = timed(locks.lock("k").wait(ms(1000)).acquire()).await;
    out.unwrap().release().await.unwrap();
    assert!(took < ms(1000), "{took:?}");
}

/// With leases to renew beside the calls, which is another connection.
#[tokio::test]
async fn a_server_that_is_down_is_not_stormed() {
    let server = server_or_skip!();
    let locks = manager(&server).await;
    let held = locks.lock("held").ttl(ms(6000)).acquire().await.unwrap();
    server.kill().unwrap();
    let stand_in = std::net::TcpListener::bind(("127.0.0.1", server.port())).unwrap();
    let attempts = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let counted = attempts.clone();
    // Takes connections, and closes them.
    std::thread::spawn(move || {
        for connection in stand_in.incoming() {
            drop(connection);
            counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    });
    let begun = std::time::Instant::now();
    let mut calls = Vec::new();
    for number in 0..20 {
        let locks = locks.clone();
        calls.push(tokio::spawn(async move {
            while begun.elapsed() < ms(3000) {
                let refused = locks.lock(format!("k{number}")).wait(ms(300)).acquire().await.unwrap_err();
                assert!(matches!(refused, LockError::Unavailable(_)), "{refused}");
            }
        }));
    }
    for call in calls {
        call.await.unwrap();
    }
    let (attempts, tenths) = (attempts.load(std::sync::atomic::Ordering::Relaxed), begun.elapsed().as_millis() / 100);
    // Both connections found out at the same time.
    assert!(attempts >= 10 && u128::from(attempts) <= tenths + 2, "{attempts} in {tenths} tenths of a second");
    drop(held);
}

#[tokio::test]
async fn a_key_whose_release_is_not_answered_is_an_outage_and_not_busy_for_the_next_task() {
    let server = server_or_skip!();
    let locks = impatient(&server).response_timeout(ms(400)).build().await.unwrap();
    let lease = locks.lock("k").acquire().await.unwrap();
    server.pause().unwrap();
    assert!(matches!(lease.release().await, Err(LockError::Unavailable(_))));
    // The release goes on in the background, for longer than this call waits for its turn.
    let out = locks.lock("k").wait(ms(50)).acquire().await;
    assert!(matches!(out, Err(LockError::Unavailable(_))), "{out:?}");
}

#[tokio::test]
async fn a_server_that_accepts_and_never_answers_is_an_outage_and_not_busy() {
    let server = server_or_skip!();
    let locks = impatient(&server).build().await.unwrap();
    locks.lock("k").run(async |_| ()).await.unwrap();
    server.pause().unwrap();
    let calls: Vec<_> = (0..20).map(|_| tokio::spawn(timed(locks.lock("k").wait(ms(300)).around(async {})))).collect();
    for call in calls {
        let (out, took) = call.await.unwrap();
        let error = out.unwrap_err();
        assert!(matches!(error, LockError::Unavailable(_)), "{error:?}");
        assert!(took <= ms(350), "{took:?}");
    }
    server.resume().unwrap();
    locks.lock("k").wait(ms(1000)).acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_release_that_is_not_answered_makes_nobody_busy() {
    let server = server_or_skip!();
    let locks = manager(&server).await;
    let lease = locks.lock("k").acquire().await.unwrap();
    server.pause().unwrap();
    drop(lease);
    // Each of them waits for the one before, and the first for the release.
    let calls: Vec<_> = (0..3).map(|_| tokio::spawn(timed(locks.lock("k").wait(ms(300)).around(async {})))).collect();
    for call in calls {
        let (out, took) = call.await.unwrap();
        let error = out.unwrap_err();
        assert!(matches!(error, LockError::Unavailable(_)), "{error:?}");
        assert!(took <= ms(450), "{took:?}");
    }
    server.resume().unwrap();
    locks.lock("k").wait(ms(1000)).run(async |_| ()).await.unwrap();
}

#[tokio::test]
async fn a_waiter_survives_a_restart_within_its_budget() {
    let server = server_or_skip!();
    let (a, b) = (manager(&server).await, manager(&server).await);
    let held = a.lock("k").ttl(ms(60_000)).acquire().await.unwrap();
    let waiting = tokio::spawn(b.lock("k").wait(ms(10_000)).around(async {}));
    tokio::time::sleep(ms(100)).await;
    server.kill().unwrap();
    tokio::time::sleep(ms(300)).await;
    assert!(!waiting.is_finished());
    server.restart_empty().unwrap();
    let (done, took) = timed(waiting).await;
    done.unwrap().unwrap();
    assert!(took < ms(1000), "{took:?}");
    drop(held);
}

#[tokio::test]
async fn a_demoted_server_is_unavailable_until_it_is_a_primary_again() {
    let server = server_or_skip!();
    let locks = manager(&server).await;
    locks.lock("k").run(async |_| ()).await.unwrap();
    ask(&server, &["REPLICAOF", "127.0.0.1", "1"]);
    let error = locks.lock("k").acquire().await.unwrap_err();
    assert!(matches!(error, LockError::Unavailable(_)), "{error:?}");
    assert!(error.to_string().contains("READONLY"), "{error}");
    ask(&server, &["REPLICAOF", "NO", "ONE"]);
    locks.lock("k").wait(ms(1000)).acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_demoted_server_is_not_believed_about_what_it_has() {
    let server = server_or_skip!();
    let (locks, others) = (manager(&server).await, manager(&server).await);
    let _held = others.lock("held").acquire().await.unwrap();
    let [gone, given] = ["gone", "given"].map(|key| locks.lock(key));
    let (gone, given) = (gone.acquire().await.unwrap(), given.acquire().await.unwrap());
    ask(&server, &["DEL", "distlock:gone", "distlock:given"]);
    ask(&server, &["REPLICAOF", "127.0.0.1", "1"]);
    let busy = locks.lock("held").acquire().await.unwrap_err();
    let lost = gone.extend(ms(60_000)).await.unwrap_err();
    let released = given.release().await.unwrap_err();
    for error in [busy, lost, released] {
        assert!(matches!(error, LockError::Unavailable(_)), "{error:?}");
        assert!(error.to_string().contains("READONLY"), "{error}");
    }
    assert!(gone.is_held());
    ask(&server, &["REPLICAOF", "NO", "ONE"]);
}

#[tokio::test]
async fn a_busy_script_elsewhere_is_an_outage_and_the_lease_survives_it() {
    let server = server_or_skip!(distlock_testkit::Server::builder().setting("lua-time-limit", "10"));
    let locks = impatient(&server).build().await.unwrap();
    let lease = locks.lock("held").ttl(ms(1500)).acquire().await.unwrap();
    let mut blocker = server.connect().unwrap();
    blocker.send(&["EVAL", "while true do end", "0"]).unwrap();
    crate::support::until("the server says BUSY", ms(2000), || {
        !server.command(&["GET", "x"]).is_ok_and(|reply| reply.is_nil())
    })
    .await;
    let error = locks.lock("k").acquire().await.unwrap_err();
    assert!(matches!(error, LockError::Unavailable(_)), "{error:?}");
    tokio::time::sleep(ms(700)).await;
    ask(&server, &["SCRIPT", "KILL"]);
    crate::support::until("renewed", ms(1000), || lease.remaining() > ms(1000)).await;
}

#[tokio::test]
async fn an_outage_after_the_key_was_seen_held_is_an_outage() {
    let server = server_or_skip!();
    let (locks, other) = (impatient(&server).build().await.unwrap(), manager(&server).await);
    let _held = other.lock("k").ttl(ms(60_000)).acquire().await.unwrap();
    let waiting = tokio::spawn(locks.lock("k").wait(ms(1500)).around(async {}));
    tokio::time::sleep(ms(300)).await;
    server.pause().unwrap();
    let error = waiting.await.unwrap().unwrap_err();
    server.resume().unwrap();
    assert!(matches!(error, LockError::Unavailable(_)), "{error:?}");
}

#[tokio::test]
async fn calls_without_a_wait_do_not_starve_one_that_waits() {
    let server = server_or_skip!();
    let locks = manager(&server).await;
    let hasty: Vec<_> = (0..4)
        .map(|_| {
            let locks = locks.clone();
            tokio::spawn(async move {
                loop {
                    let _ = locks.lock("k").run(async |_| tokio::time::sleep(ms(5)).await).await;
                    tokio::time::sleep(ms(1)).await;
                }
            })
        })
        .collect();
    for _ in 0..8 {
        let (got, took) = timed(locks.lock("k").wait(ms(2000)).acquire()).await;
        got.unwrap().release().await.unwrap();
        assert!(took < ms(1000), "{took:?}");
    }
    hasty.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn a_server_that_is_no_redis_is_not_taken_for_one_that_is_down() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let web = tokio::spawn(async move {
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            let _ = tokio::io::AsyncWriteExt::write_all(&mut client, b"HTTP/1.1 400 Bad Request\r\n\r\n<html>").await;
        }
    });
    let error = LockManager::connect(address.to_string()).await.unwrap_err();
    web.abort();
    assert!(matches!(error, LockError::Config(_)), "{error:?}");
    assert!(error.to_string().contains("not as a Redis"), "{error}");
}

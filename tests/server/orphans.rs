//! D2.4 and D2.5: what becomes of an acquisition whose answer is late or lost.

use distlock::{LockError, LockManager};
use distlock_testkit::{Fault, FaultProxy, Match, dropped_after, server_or_skip};
use tokio::time::timeout;

use crate::support::{ask, exists, impatient, manager, ms, timed, until};

const ACQUIRE: &str = concat!(
    include_str!("../../distlock-runtime/src/store/redis/lua/queue.lua"),
    include_str!("../../distlock-runtime/src/store/redis/lua/acquire.lua")
);
const RELEASE: &str = concat!(
    include_str!("../../distlock-runtime/src/store/redis/lua/queue.lua"),
    include_str!("../../distlock-runtime/src/store/redis/lua/release.lua")
);

#[tokio::test]
async fn a_frozen_server_that_executes_what_it_had_buffered_leaves_no_key() {
    let server = server_or_skip!();
    let locks = impatient(&server).build().await.unwrap();
    for wait in [0, 50, 400] {
        server.pause().unwrap();
        let (refused, took) = timed(locks.lock("k").ttl(ms(30_000)).wait(ms(wait)).acquire()).await;
        assert!(matches!(refused.unwrap_err(), LockError::Unavailable(_)));
        assert!(took < ms(wait.max(300) + 150), "{took:?} for a wait of {wait} ms");
        server.resume().unwrap();
        // Whatever was buffered is executed at once; the compensation follows within a second.
        until("the key is gone for good", ms(1000), || {
            let waiting = ask(&server, &["EXISTS", "distlock:k"]).as_int() == Some(1);
            !waiting && locks_are_idle(&server)
        })
        .await;
        let lease = locks.lock("k").wait(ms(1000)).acquire().await.unwrap();
        lease.release().await.unwrap();
    }
}

/// No key but the counter and burials is there.
fn locks_are_idle(server: &distlock_testkit::Server) -> bool {
    let distlock_testkit::Reply::List(keys) = ask(server, &["KEYS", "*"]) else { return false };
    keys.iter().filter_map(|key| key.as_text()).all(|key| key == "{distlock}:fence" || key.contains(":gone:"))
}

#[tokio::test]
async fn a_call_dropped_while_its_acquisition_is_under_way_leaves_no_key() {
    let server = server_or_skip!();
    let locks = impatient(&server).build().await.unwrap();
    for _ in 0..10 {
        server.pause().unwrap();
        let call = locks.lock("k").ttl(ms(30_000)).run(async |_| std::future::pending::<()>().await);
        assert!(timeout(ms(20), call).await.is_err());
        server.resume().unwrap();
        until("the key is gone", ms(1000), || !exists(&server, "distlock:k")).await;
    }
}

/// A call that acquires, works a little and releases.
async fn call(locks: &LockManager) {
    let done = locks.lock("k").ttl(ms(30_000)).wait(ms(5000)).run(async |lease| {
        for _ in 0..3 {
            lease.ensure_held().unwrap();
            tokio::time::sleep(ms(1)).await;
        }
    });
    done.await.unwrap();
}

#[tokio::test]
async fn after_each_poll_of_a_call_the_key_is_gone_at_once() {
    let server = server_or_skip!();
    let locks = manager(&server).await;
    let mut polls = 0;
    while !dropped_after(polls, call(&locks)).await {
        until("the key is gone", ms(200), || !exists(&server, "distlock:k")).await;
        polls += 1;
    }
    assert!(polls >= 5, "only {polls} steps were tried");
}

#[tokio::test]
async fn after_each_poll_of_a_waiter_in_another_process_the_key_is_gone_at_once() {
    let server = server_or_skip!();
    let (holder, locks) = (manager(&server).await, manager(&server).await);
    let mut polls = 0;
    loop {
        let held = holder.lock("k").ttl(ms(30_000)).acquire().await.unwrap();
        let releasing = tokio::spawn(async move {
            tokio::time::sleep(ms(60)).await;
            held.release().await.unwrap();
        });
        let finished = dropped_after(polls, call(&locks)).await;
        releasing.await.unwrap();
        until("the key is gone", ms(200), || !exists(&server, "distlock:k")).await;
        if finished {
            break;
        }
        polls += 1;
    }
    assert!(polls >= 6, "only {polls} steps were tried");
}

/// The command is on its way to the server, or executed and its answer on the way back; the same for the release.
#[tokio::test]
async fn a_call_given_up_at_each_step_of_a_server_leaves_no_key() {
    let server = server_or_skip!();
    let proxy = FaultProxy::start(server.port()).await.unwrap();
    let locks = LockManager::connect(proxy.url()).await.unwrap();
    call(&locks).await;
    for (script, fault) in [
        (ACQUIRE, Fault::DelayCommand(ms(300))),
        (ACQUIRE, Fault::DelayReply(ms(300))),
        (RELEASE, Fault::DelayCommand(ms(300))),
        (RELEASE, Fault::DelayReply(ms(300))),
    ] {
        let injected = proxy.inject(Match::nth(1).script(script), fault.clone());
        assert!(timeout(ms(100), call(&locks)).await.is_err(), "{fault:?}");
        assert_eq!(injected.hits(), 1, "{fault:?}");
        // What was delayed is there 300 ms after it was sent, and what takes it back is right behind it.
        tokio::time::sleep(ms(300)).await;
        until("the key is gone", ms(200), || !exists(&server, "distlock:k")).await;
        proxy.clear();
        call(&locks).await;
        assert!(!exists(&server, "distlock:k"), "{fault:?}: it came back");
    }
}

#[tokio::test]
async fn a_late_compensation_does_not_delete_the_lease_of_the_retry() {
    let server = server_or_skip!();
    let locks = impatient(&server).build().await.unwrap();
    server.pause().unwrap();
    assert!(locks.lock("k").ttl(ms(30_000)).acquire().await.is_err());
    server.resume().unwrap();
    // The compensation for the first call may still be on its way.
    let lease = locks.lock("k").ttl(ms(3000)).wait(ms(2000)).acquire().await.unwrap();
    for _ in 0..100 {
        tokio::time::sleep(ms(5)).await;
        assert!(lease.is_held() && exists(&server, "distlock:k"));
    }
    lease.release().await.unwrap();
}

#[tokio::test]
async fn a_waiter_whose_answer_got_lost_recognises_itself() {
    let server = server_or_skip!();
    let locks = impatient(&server).build().await.unwrap();
    server.pause().unwrap();
    let waiting = tokio::spawn(locks.lock("k").ttl(ms(5000)).wait(ms(5000)).around(async {}));
    tokio::time::sleep(ms(150)).await;
    server.resume().unwrap();
    let (done, took) = timed(waiting).await;
    done.unwrap().unwrap();
    assert!(took < ms(1000), "{took:?}: it waited for itself");
    until("the key is gone", ms(1000), || !exists(&server, "distlock:k")).await;
}

#[tokio::test]
async fn time_outs_in_the_body_free_the_key_at_once() {
    let server = server_or_skip!();
    let locks = manager(&server).await;
    for _ in 0..200 {
        let call = locks.lock("k").ttl(ms(30_000)).run(async |_| tokio::time::sleep(ms(60_000)).await);
        assert!(timeout(ms(5), call).await.is_err());
        until("the key is gone", ms(200), || !exists(&server, "distlock:k")).await;
    }
}

#[tokio::test]
async fn a_call_right_after_a_drop_does_not_find_its_own_process_s_leftovers() {
    let server = server_or_skip!();
    let locks = manager(&server).await;
    for _ in 0..200 {
        let lease = locks.lock("k").acquire().await.unwrap();
        drop(lease);
        let next = locks.lock("k").acquire().await.unwrap();
        next.release().await.unwrap();
    }
}

#[tokio::test]
async fn aborted_and_panicking_tasks_free_the_key_at_once() {
    let server = server_or_skip!();
    let locks = manager(&server).await;
    for _ in 0..50 {
        let task = tokio::spawn(locks.lock("k").ttl(ms(30_000)).around(std::future::pending::<()>()));
        until("the key is taken", ms(1000), || exists(&server, "distlock:k")).await;
        task.abort();
        until("the key is gone", ms(200), || !exists(&server, "distlock:k")).await;
    }
    let task = tokio::spawn(locks.lock("k").ttl(ms(30_000)).around(async { panic!("the body's own") }));
    assert!(task.await.unwrap_err().is_panic());
    until("the key is gone", ms(200), || !exists(&server, "distlock:k")).await;
}

#[tokio::test]
async fn a_release_without_an_answer_is_told_and_goes_on_until_it_is_answered() {
    let server = server_or_skip!();
    let locks = impatient(&server).build().await.unwrap();
    let lease = locks.lock("k").ttl(ms(30_000)).acquire().await.unwrap();
    server.pause().unwrap();
    let (answer, took) = timed(lease.release()).await;
    assert!(matches!(answer.unwrap_err(), LockError::Unavailable(_)));
    assert!(took < ms(200), "{took:?}");
    tokio::time::sleep(ms(600)).await;
    server.resume().unwrap();
    until("the key is gone", ms(1000), || !exists(&server, "distlock:k")).await;
}

#[tokio::test]
async fn the_body_s_outcome_wins_over_a_failed_release() {
    let server = server_or_skip!();
    let locks = impatient(&server).build().await.unwrap();
    let out = locks
        .lock("k")
        .run(async |_| {
            server.pause().unwrap();
            42
        })
        .await;
    server.resume().unwrap();
    assert_eq!(out.unwrap(), 42);
}

#[tokio::test]
async fn the_release_of_an_extended_lease_is_not_given_up_after_its_first_ttl() {
    let server = server_or_skip!();
    let locks = impatient(&server).build().await.unwrap();
    let lease = locks.lock("k").ttl(ms(200)).acquire().await.unwrap();
    lease.extend(ms(120_000)).await.unwrap();
    server.pause().unwrap();
    drop(lease);
    tokio::time::sleep(ms(1000)).await;
    server.resume().unwrap();
    until("the key is gone", ms(1500), || !exists(&server, "distlock:k")).await;
}

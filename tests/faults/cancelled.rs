//! D2.5 and D2.10: a call given up at any step, on its side or on the server's.

use distlock::LockManager;
use distlock_testkit::{Fault, Match, dropped_after};
use tokio::time::{sleep, timeout};

use crate::support::{ACQUIRE, RELEASE, all_is_well, exists, gone_within, manager, ms, node};

/// A call that acquires, works a little and releases.
async fn call(locks: &LockManager) {
    let done = locks.lock("k").ttl(ms(30_000)).wait(ms(5000)).run(async |lease| {
        for _ in 0..3 {
            lease.ensure_held().unwrap();
            sleep(ms(1)).await;
        }
    });
    done.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn after_each_poll_of_a_call_the_key_is_gone_at_once() {
    let node = node();
    let locks = manager(&node).await;
    let mut polls = 0;
    while !dropped_after(polls, call(&locks)).await {
        gone_within(&node, "k", ms(50)).await;
        polls += 1;
    }
    assert!(polls >= 5, "only {polls} steps were tried");
    all_is_well(&node, "k", [locks]).await;
}

#[tokio::test(start_paused = true)]
async fn after_each_poll_of_a_call_that_has_to_connect_first() {
    let node = node();
    for polls in 0.. {
        let locks = crate::support::on(&node).lazy().build().await.unwrap();
        let finished = dropped_after(polls, call(&locks)).await;
        gone_within(&node, "k", ms(50)).await;
        if finished {
            assert!(polls >= 6, "only {polls} steps were tried");
            return all_is_well(&node, "k", [locks]).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn after_each_poll_of_a_waiter_in_another_process() {
    let node = node();
    let (holder, locks) = (manager(&node).await, manager(&node).await);
    let mut polls = 0;
    loop {
        let held = holder.lock("k").ttl(ms(30_000)).acquire().await.unwrap();
        let release = tokio::spawn(async move {
            sleep(ms(300)).await;
            held.release().await.unwrap();
        });
        let finished = dropped_after(polls, call(&locks)).await;
        release.await.unwrap();
        gone_within(&node, "k", ms(50)).await;
        if finished {
            break;
        }
        polls += 1;
    }
    assert!(polls >= 6, "only {polls} steps were tried");
    all_is_well(&node, "k", [holder, locks]).await;
}

/// At each of the server's steps: the command is on its way, or executed and its answer on the way, or the release is.
#[tokio::test(start_paused = true)]
async fn at_each_step_of_the_server() {
    let node = node();
    let locks = manager(&node).await;
    call(&locks).await;
    for (script, fault) in [
        (ACQUIRE, Fault::DelayCommand(ms(400))),
        (ACQUIRE, Fault::DelayReply(ms(400))),
        (RELEASE, Fault::DelayCommand(ms(400))),
        (RELEASE, Fault::DelayReply(ms(400))),
    ] {
        node.inject(Match::nth(1).script(script), fault.clone());
        assert!(timeout(ms(100), call(&locks)).await.is_err(), "{fault:?}");
        // What was delayed comes 400 ms after it was sent; what takes it back stands behind it.
        gone_within(&node, "k", ms(450)).await;
        sleep(ms(1000)).await;
        assert!(!exists(&node, "k"), "{fault:?}: it came back");
        node.clear();
        call(&locks).await;
    }
    all_is_well(&node, "k", [locks]).await;
}

#[tokio::test(start_paused = true)]
async fn abort_panic_select_and_time_out_in_the_body() {
    let node = node();
    let locks = manager(&node).await;
    for _ in 0..100 {
        let endless = || locks.lock("k").ttl(ms(30_000)).around(std::future::pending::<()>());
        assert!(timeout(ms(20), endless()).await.is_err());
        gone_within(&node, "k", ms(50)).await;
        tokio::select! {
            _ = endless() => unreachable!(),
            () = sleep(ms(20)) => {}
        }
        gone_within(&node, "k", ms(50)).await;
        let task = tokio::spawn(endless());
        sleep(ms(20)).await;
        task.abort();
        gone_within(&node, "k", ms(50)).await;
    }
    let task = tokio::spawn(locks.lock("k").ttl(ms(30_000)).around(async { panic!("the body's own") }));
    assert!(task.await.unwrap_err().is_panic());
    gone_within(&node, "k", ms(50)).await;
    all_is_well(&node, "k", [locks]).await;
}

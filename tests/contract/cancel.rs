//! D2.5 and D2.10: a call dropped anywhere leaves no key, no turn and no task behind.

use distlock::{LockManager, Renew};
use tokio::time::{sleep, timeout};

use distlock_testkit::dropped_after;

use crate::support::{assert_free, ms, settle};

#[tokio::test(start_paused = true)]
async fn a_call_may_be_dropped_after_each_of_its_polls() {
    let locks = LockManager::in_memory();
    let mut polls = 0;
    loop {
        let call = locks.lock("k").ttl(ms(30_000)).run(async |lease| {
            for _ in 0..5 {
                lease.ensure_held().unwrap();
                sleep(ms(1)).await;
            }
        });
        let finished = dropped_after(polls, call).await;
        settle().await;
        assert_free(&locks, "k").await;
        if finished {
            break;
        }
        polls += 1;
    }
    assert!(polls >= 5, "only {polls} steps were tried");
    settle().await;
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_may_be_dropped_after_each_of_its_polls() {
    let locks = LockManager::in_memory();
    let mut polls = 0;
    loop {
        let held = locks.lock("k").acquire().await.unwrap();
        // Ends while the other one waits, so that the waiter's steps go from the queue to the end of its own body.
        let holder = tokio::spawn(async move {
            sleep(ms(10)).await;
            held.release().await.unwrap();
        });
        let waiting = locks.lock("k").wait(ms(60_000)).run(async |_| sleep(ms(1)).await);
        let finished = dropped_after(polls, waiting).await;
        holder.await.unwrap();
        settle().await;
        assert_free(&locks, "k").await;
        if finished {
            break;
        }
        polls += 1;
    }
    assert!(polls >= 2, "only {polls} steps were tried");
}

#[tokio::test(start_paused = true)]
async fn a_queued_waiter_that_was_given_the_turn_and_never_polled_again_passes_it_on_when_dropped() {
    let locks = LockManager::in_memory();
    let held = locks.lock("k").acquire().await.unwrap();
    let mut first = Box::pin(locks.lock("k").wait(ms(60_000)).acquire());
    assert!(timeout(ms(1), first.as_mut()).await.is_err());
    let second = tokio::spawn(locks.lock("k").wait(ms(60_000)).around(async {}));
    settle().await;
    held.release().await.unwrap();
    settle().await;
    assert!(!second.is_finished());
    drop(first);
    second.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn time_outs_select_and_abort_free_the_key() {
    let locks = LockManager::in_memory();
    for _ in 0..1000 {
        let call = || locks.lock("k").run(async |_| sleep(ms(60_000)).await);
        assert!(timeout(ms(50), call()).await.is_err());
        settle().await;
        assert_free(&locks, "k").await;
        tokio::select! {
            _ = call() => unreachable!(),
            () = sleep(ms(50)) => {}
        }
        settle().await;
        assert_free(&locks, "k").await;
        let task = tokio::spawn(locks.lock("k").around(std::future::pending::<()>()));
        settle().await;
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
        assert_free(&locks, "k").await;
    }
    settle().await;
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0);
}

#[test]
fn a_guard_may_be_dropped_outside_of_any_runtime() {
    let locks = LockManager::in_memory();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let lease = runtime.block_on(locks.lock("k").acquire()).unwrap();
    let second = runtime.block_on(locks.lock("k2").acquire()).unwrap();
    runtime.shutdown_background();
    std::thread::spawn(move || drop(lease)).join().unwrap();
    // Inside another runtime, while unwinding.
    let other = tokio::runtime::Runtime::new().unwrap();
    let panicked = other.block_on(async move {
        tokio::spawn(async move {
            let _second = second;
            panic!("unwinding");
        })
        .await
    });
    assert!(panicked.unwrap_err().is_panic());
    other.block_on(async {
        assert_free(&locks, "k").await;
        assert_free(&locks, "k2").await;
    });
}

#[tokio::test(start_paused = true)]
async fn a_leaked_lease_that_is_not_renewed_blocks_nobody_for_ever() {
    let locks = LockManager::in_memory();
    std::mem::forget(locks.lock("k").ttl(ms(500)).renew(Renew::Off).acquire().await.unwrap());
    let begun = tokio::time::Instant::now();
    locks.lock("k").wait_forever().around(async {}).await.unwrap();
    assert!(begun.elapsed() <= ms(502), "{:?}", begun.elapsed());
}

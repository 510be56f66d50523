//! D2.3, the gate, and the wait budget.

use std::sync::{Arc, Mutex};

use distlock::{Lock, LockError, LockManager};
use tokio::time::Instant;

use crate::support::{Counter, assert_free, ms, settle};

#[tokio::test]
async fn a_future_that_is_never_polled_takes_nothing() {
    let locks = LockManager::in_memory();
    let waiting = locks.lock("k").acquire();
    let running = locks.lock("k").run(async |_| ());
    let around = locks.lock("k").around(async {});
    assert_free(&locks, "k").await;
    drop((waiting, running, around));
    assert_free(&locks, "k").await;
}

#[tokio::test(start_paused = true)]
async fn the_default_is_one_try() {
    let locks = LockManager::in_memory();
    let _held = locks.lock("k").acquire().await.unwrap();
    let begun = Instant::now();
    let busy = locks.lock("k").acquire().await.unwrap_err();
    assert!(busy.is_busy());
    assert_eq!(begun.elapsed(), ms(0));
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_when_its_budget_does_and_says_who_holds_the_key() {
    let locks = LockManager::in_memory();
    let held = locks.lock("k").acquire().await.unwrap();
    let begun = Instant::now();
    let LockError::Busy(busy) = locks.lock("k").wait(ms(300)).acquire().await.unwrap_err() else { panic!() };
    assert_eq!(begun.elapsed(), ms(300));
    assert_eq!((busy.key(), busy.waited()), ("k", ms(300)));
    assert_eq!(busy.held_for(), Some(ms(300)));
    assert!(busy.retry_after().is_some());
    let holder = busy.holder().unwrap();
    assert_eq!((holder.pid(), holder.fencing_token()), (std::process::id(), Some(held.fencing_token())));
    assert!(holder.function().contains("waiting.rs"), "{holder}");
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn tasks_of_one_process_get_their_turn_in_order() {
    let locks = LockManager::in_memory();
    let order = Arc::new(Mutex::new(Vec::new()));
    let held = locks.lock("k").acquire().await.unwrap();
    let tasks: Vec<_> = (0..20)
        .map(|number| {
            let (locks, order) = (locks.clone(), order.clone());
            tokio::spawn(async move {
                let lease = locks.lock("k").wait_forever().acquire().await.unwrap();
                order.lock().unwrap().push((number, lease.fencing_token()));
                lease.release().await.unwrap();
            })
        })
        .collect();
    settle().await;
    held.release().await.unwrap();
    for task in tasks {
        task.await.unwrap();
    }
    let order = order.lock().unwrap();
    assert!(order.iter().map(|(number, _)| *number).eq(0..20), "{order:?}");
    assert!(order.is_sorted_by(|a, b| a.1 < b.1), "{order:?}");
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_gave_up_does_not_stop_those_behind_it() {
    let locks = LockManager::in_memory();
    let held = locks.lock("k").acquire().await.unwrap();
    let impatient = tokio::spawn(locks.lock("k").wait(ms(10)).around(async {}));
    settle().await;
    let patient = tokio::spawn(locks.lock("k").wait(ms(1000)).around(async {}));
    assert!(impatient.await.unwrap().unwrap_err().is_busy());
    held.release().await.unwrap();
    patient.await.unwrap().unwrap();
}

/// The holder never lets go, and nothing renews it.
#[tokio::test(start_paused = true)]
async fn the_validity_counts_from_the_try_that_succeeded() {
    let locks = LockManager::in_memory();
    let leaked = locks.lock("k").ttl(ms(1200)).renew(distlock::Renew::Off).acquire().await.unwrap();
    std::mem::forget(leaked);
    let begun = Instant::now();
    let lease = locks.lock("k").ttl(ms(1000)).wait(ms(5000)).acquire().await.unwrap();
    assert!(begun.elapsed() >= ms(1186) && begun.elapsed() <= ms(1210), "{:?}", begun.elapsed());
    assert!(lease.remaining() > ms(900) && lease.remaining() <= ms(1000), "{:?}", lease.remaining());
}

#[tokio::test(start_paused = true)]
async fn forever_has_to_be_spelled_out_and_then_is() {
    let locks = LockManager::in_memory();
    let held = locks.lock("k").acquire().await.unwrap();
    let spellings: [fn(Lock) -> Lock; 2] = [|lock| lock.wait_forever(), |lock| lock.wait(std::time::Duration::MAX)];
    let waiting: Vec<_> =
        spellings.into_iter().map(|spell| tokio::spawn(spell(locks.lock("k")).around(async {}))).collect();
    tokio::time::sleep(ms(3_600_000)).await;
    assert!(waiting.iter().all(|task| !task.is_finished()));
    drop(held);
    for task in waiting {
        task.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn two_hundred_tasks_are_never_in_at_once() {
    let locks = LockManager::in_memory();
    let (inside, ran) = (Counter::default(), Counter::default());
    let tasks: Vec<_> = (0..200)
        .map(|_| {
            let (inside, ran) = (inside.clone(), ran.clone());
            tokio::spawn(locks.lock("k").wait_forever().around(async move {
                inside.add();
                let before = inside.get();
                tokio::task::yield_now().await;
                assert_eq!(inside.get(), before, "somebody else came in");
                ran.add();
            }))
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    assert_eq!(ran.get(), 200);
}

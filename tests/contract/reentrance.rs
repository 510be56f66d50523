//! D2.11: the same task, the same key.

use std::pin::Pin;

use distlock::{LockError, LockManager};
use tokio::time::{Instant, sleep};

use crate::support::{assert_free, ms, settle};

fn inner(locks: &LockManager, allow: bool) -> impl Future<Output = Result<u32, LockError>> + Send + 'static {
    locks.lock("k").wait(ms(10_000)).reentrant(allow).around(async {
        sleep(ms(1)).await;
        7
    })
}

#[tokio::test(start_paused = true)]
async fn a_nested_call_on_the_same_key_fails_at_once_and_says_where_it_is_held() {
    let locks = LockManager::in_memory();
    let begun = Instant::now();
    let nested = locks.lock("k").run(async |_| inner(&locks, false).await).await.unwrap();
    let LockError::Reentrant(reentrant) = nested.unwrap_err() else { panic!() };
    assert_eq!((reentrant.key(), begun.elapsed()), ("k", ms(0)));
    assert!(reentrant.held_at().contains("reentrance.rs"));
    assert_free(&locks, "k").await;
}

#[tokio::test(start_paused = true)]
async fn it_is_found_across_join_and_any_depth() {
    let locks = LockManager::in_memory();
    let both = locks
        .lock("k")
        .run(async |_| {
            let deep = locks.lock("another").run(async |_| inner(&locks, false).await);
            let boxed: Pin<Box<dyn Future<Output = _>>> = Box::pin(inner(&locks, false));
            tokio::join!(deep, boxed)
        })
        .await
        .unwrap();
    assert!(matches!(both.0, Ok(Err(LockError::Reentrant(_)))), "{both:?}");
    assert!(matches!(both.1, Err(LockError::Reentrant(_))), "{both:?}");
}

#[tokio::test(start_paused = true)]
async fn allowed_it_enters_and_the_key_is_free_only_after_the_outermost_exit() {
    let locks = LockManager::in_memory();
    locks
        .lock("k")
        .run(async |outer| {
            let token = outer.fencing_token();
            let within = locks.lock("k").reentrant(true).run(async |inner| inner.fencing_token()).await.unwrap();
            assert_eq!(within, token);
            assert!(outer.is_held());
            let other = locks.clone();
            let probe = tokio::spawn(async move { other.lock("k").try_acquire().await.unwrap().is_none() });
            assert!(probe.await.unwrap(), "the inner exit released the outer lock");
        })
        .await
        .unwrap();
    assert_free(&locks, "k").await;
}

#[tokio::test(start_paused = true)]
async fn ownership_does_not_leak_through_spawn() {
    let locks = LockManager::in_memory();
    for allow in [false, true] {
        let mut spawned = None;
        locks
            .lock("k")
            .run(async |_| {
                let task = tokio::spawn(inner(&locks, allow));
                sleep(ms(100)).await;
                assert!(!task.is_finished(), "the spawned task came in beside its parent");
                spawned = Some(task);
            })
            .await
            .unwrap();
        assert_eq!(spawned.unwrap().await.unwrap().unwrap(), 7);
    }
}

#[tokio::test(start_paused = true)]
async fn two_tasks_on_one_thread_exclude_each_other_with_re_entrance_allowed() {
    let locks = LockManager::in_memory();
    let first = tokio::spawn(locks.lock("k").reentrant(true).around(sleep(ms(50))));
    settle().await;
    let begun = Instant::now();
    inner(&locks, true).await.unwrap();
    assert!(begun.elapsed() >= ms(50));
    first.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn calls_side_by_side_in_one_task_wait_for_each_other() {
    let locks = LockManager::in_memory();
    let (a, b) = tokio::join!(inner(&locks, false), inner(&locks, false));
    assert_eq!((a.unwrap(), b.unwrap()), (7, 7));
}

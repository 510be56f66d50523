//! Which manager is used, what its end does, and that managers do not see each other.

use distlock::{LockError, LockManager, LossCause, current, scope};
use tokio::time::sleep;

use crate::support::{assert_free, cause, ms, settle};

async fn here() -> Result<(), LockError> {
    current()?.lock("k").run(async |_| ()).await
}

#[tokio::test]
async fn without_a_manager_the_error_says_what_to_write() {
    let error = here().await.unwrap_err();
    assert!(matches!(error, LockError::NotConfigured(_)));
    assert!(error.to_string().contains("distlock::init") && error.to_string().contains("distlock::scope"), "{error}");
}

#[tokio::test]
async fn the_inner_scope_wins_and_spawned_tasks_do_not_inherit_it() {
    let (outer, inner) = (LockManager::in_memory(), LockManager::in_memory());
    let _held = outer.lock("k").acquire().await.unwrap();
    scope(&outer, async {
        assert!(here().await.unwrap_err().is_busy());
        scope(&inner, async { here().await.unwrap() }).await;
        let mut borrowed = inner.clone();
        scope(&mut borrowed, async { here().await.unwrap() }).await;
        scope(Box::new(inner.clone()), async { here().await.unwrap() }).await;
        assert!(here().await.unwrap_err().is_busy());
        let lost = tokio::spawn(here()).await.unwrap().unwrap_err();
        assert!(matches!(lost, LockError::NotConfigured(_)));
        let passed = tokio::spawn(scope(current().unwrap(), here())).await.unwrap();
        assert!(passed.unwrap_err().is_busy());
    })
    .await;
}

#[tokio::test]
async fn managers_in_memory_are_worlds_of_their_own() {
    let (a, b) = (LockManager::in_memory(), LockManager::in_memory());
    let _held = a.lock("k").acquire().await.unwrap();
    assert_free(&b, "k").await;
    assert!(a.clone().lock("k").try_acquire().await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_what_is_live_and_closes_the_manager() {
    let locks = LockManager::in_memory();
    let by_hand = locks.lock("a").acquire().await.unwrap();
    std::mem::forget(locks.lock("leaked").acquire().await.unwrap());
    let body = tokio::spawn(locks.lock("b").around(sleep(ms(60_000))));
    settle().await;
    let shutdown = locks.shutdown(ms(2000)).await;
    assert_eq!((shutdown.released, shutdown.left), (3, 0));
    assert_eq!(cause(&by_hand.ensure_held().unwrap_err()), LossCause::Shutdown);
    assert_eq!(cause(&body.await.unwrap().unwrap_err()), LossCause::Shutdown);
    for error in
        [locks.lock("a").acquire().await.unwrap_err(), locks.clone().lock("x").run(async |_| ()).await.unwrap_err()]
    {
        assert!(matches!(error, LockError::Closed(_)), "{error:?}");
    }
}

#[tokio::test]
async fn a_time_out_that_cannot_be_reckoned_with_is_refused() {
    let builder = || LockManager::builder().url("memory:");
    for limit in [std::time::Duration::MAX, ms(3_600_001), ms(0)] {
        for builder in [builder().response_timeout(limit), builder().connect_timeout(limit)] {
            let refused = builder.build().await.unwrap_err();
            assert!(matches!(refused, LockError::Config(_)) && refused.to_string().contains("timeout"), "{refused:?}");
        }
    }
    builder().response_timeout(ms(3_600_000)).connect_timeout(ms(3_600_000)).build().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn waiters_of_a_closed_manager_are_told() {
    let locks = LockManager::in_memory();
    let held = locks.lock("k").acquire().await.unwrap();
    let waiting = tokio::spawn(locks.lock("k").wait_forever().around(async {}));
    settle().await;
    locks.shutdown(ms(1000)).await;
    assert!(matches!(waiting.await.unwrap(), Err(LockError::Closed(_))));
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_does_not_let_a_waiter_sleep_on() {
    let locks = LockManager::in_memory();
    locks.lock("k").min_hold(ms(3_600_000)).around(async {}).await.unwrap();
    let waiting = tokio::spawn(locks.lock("k").wait(ms(7_200_000)).around(async {}));
    settle().await;
    let begun = tokio::time::Instant::now();
    locks.shutdown(ms(1000)).await;
    assert!(matches!(waiting.await.unwrap(), Err(LockError::Closed(_))));
    assert_eq!(begun.elapsed(), ms(0));
}

#[test]
fn a_shutdown_outside_of_a_runtime_does_not_panic_beside_a_running_step() {
    let locks = LockManager::in_memory();
    let (inside, entered) = std::sync::mpsc::channel();
    let (leave, left) = std::sync::mpsc::channel::<()>();
    let holder = locks.clone();
    let body = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(holder.lock("k").around(async move {
            inside.send(()).unwrap();
            left.recv().unwrap();
        }))
    });
    entered.recv().unwrap();
    let mut shutdown = std::pin::pin!(locks.shutdown(ms(100)));
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    let std::task::Poll::Ready(shutdown) = shutdown.as_mut().poll(&mut cx) else { panic!("it waits") };
    assert_eq!(shutdown.released, 0);
    leave.send(()).unwrap();
    assert_eq!(cause(&body.join().unwrap().unwrap_err()), LossCause::Shutdown);
}

#[test]
fn leases_on_one_runtime_outlive_another_one() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (first, second) = (runtime(), runtime());
    let locks = first.block_on(async { LockManager::in_memory() });
    let on_first = first.block_on(locks.lock("a").acquire()).unwrap();
    second.block_on(async {
        let body = locks.lock("b").ttl(ms(150)).run(async |lease| {
            drop(on_first);
            std::thread::scope(|scope| scope.spawn(|| drop(first)).join()).unwrap();
            for _ in 0..10 {
                sleep(ms(50)).await;
            }
            lease.is_held()
        });
        assert!(body.await.unwrap(), "nobody renewed it");
    });
}

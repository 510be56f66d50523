//! Every way to lock by hand, also spawned from generic code.

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use distlock::{Lease, LockError, LockManager, Release};

/// What a service written against a trait looks like.
trait Stock: Send + Sync + 'static {
    fn take(&self) -> impl Future<Output = u32> + Send;
}

struct Shelf(u32);

impl Stock for Shelf {
    async fn take(&self) -> u32 {
        tokio::task::yield_now().await;
        self.0
    }
}

#[derive(Debug)]
enum SaleError {
    Lock(LockError),
    SoldOut,
}

impl From<LockError> for SaleError {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

fn is_send<T: Send + 'static>(value: T) -> T {
    value
}

async fn acquired<S: Stock>(locks: LockManager, stock: Arc<S>) -> u32 {
    let task = tokio::spawn(async move {
        let lease = locks.lock("stock").acquire().await?;
        let taken = stock.take().await;
        lease.release().await?;
        Ok::<_, LockError>(taken)
    });
    task.await.unwrap().unwrap()
}

async fn tried<S: Stock>(locks: LockManager, stock: Arc<S>) -> u32 {
    let task = tokio::spawn(async move {
        let lease: Option<Lease> = locks.lock("stock").try_acquire().await.unwrap();
        let taken = stock.take().await;
        drop(lease.unwrap());
        taken
    });
    task.await.unwrap()
}

async fn ran<S: Stock>(locks: LockManager, stock: Arc<S>) -> u32 {
    let task = tokio::spawn(async move {
        locks
            .lock("stock")
            .run(async |lease| {
                lease.ensure_held().unwrap();
                stock.take().await
            })
            .await
    });
    task.await.unwrap().unwrap()
}

async fn try_ran<S: Stock>(locks: LockManager, stock: Arc<S>) -> Result<u32, SaleError> {
    let task = tokio::spawn(async move {
        locks
            .lock("stock")
            .try_run(async |lease| {
                assert!(lease.fencing_token() > 0);
                match stock.take().await {
                    0 => Err(SaleError::SoldOut),
                    taken => Ok(taken),
                }
            })
            .await
    });
    task.await.unwrap()
}

async fn around<S: Stock>(locks: LockManager, stock: Arc<S>) -> u32 {
    let task = tokio::spawn(locks.lock("stock").around(async move { stock.take().await }));
    task.await.unwrap().unwrap()
}

/// A generic adapter: knows nothing of the future but that it is one.
fn guarded<F: Future<Output: Send> + Send + 'static>(locks: &LockManager, future: F) -> distlock::Locked<F> {
    is_send(locks.lock("adapter").around(future))
}

#[tokio::test]
async fn each_way_can_be_spawned_from_generic_code() {
    let locks = LockManager::in_memory();
    let stock = Arc::new(Shelf(7));
    assert_eq!(acquired(locks.clone(), stock.clone()).await, 7);
    assert_eq!(tried(locks.clone(), stock.clone()).await, 7);
    assert_eq!(ran(locks.clone(), stock.clone()).await, 7);
    assert_eq!(try_ran(locks.clone(), stock.clone()).await.unwrap(), 7);
    assert_eq!(around(locks.clone(), stock).await, 7);
    assert!(matches!(try_ran(locks.clone(), Arc::new(Shelf(0))).await, Err(SaleError::SoldOut)));
    assert_eq!(tokio::spawn(guarded(&locks, async { 3 })).await.unwrap().unwrap(), 3);
}

#[tokio::test]
async fn the_errors_of_try_run_are_the_caller_s() {
    let locks = LockManager::in_memory();
    let _held = locks.lock("stock").acquire().await.unwrap();
    let refused = try_ran(locks.clone(), Arc::new(Shelf(7))).await;
    assert!(matches!(refused, Err(SaleError::Lock(LockError::Busy(_)))), "{refused:?}");
}

#[tokio::test]
async fn a_body_that_cannot_be_sent_still_runs_in_place() {
    let locks = LockManager::in_memory();
    let local = std::rc::Rc::new(5);
    let out = locks
        .lock("local")
        .run(async |_lease| {
            tokio::task::yield_now().await;
            *local
        })
        .await;
    assert_eq!(out.unwrap(), 5);
    assert_eq!(locks.lock("local").around(async { *local }).await.unwrap(), 5);
}

#[tokio::test(start_paused = true)]
async fn try_acquire_is_none_when_busy_and_waits_only_if_told_to() {
    let locks = LockManager::builder().url("memory:").default_wait(Duration::from_secs(9)).build().await.unwrap();
    let held = locks.lock("k").acquire().await.unwrap();
    let begun = tokio::time::Instant::now();
    assert!(locks.lock("k").try_acquire().await.unwrap().is_none());
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert!(locks.lock("k").wait(Duration::from_secs(1)).try_acquire().await.unwrap().is_none());
    assert_eq!(begun.elapsed(), Duration::from_secs(1));
    assert_eq!(held.release().await.unwrap(), Release::Released);
    assert!(locks.lock("k").try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn every_public_type_has_a_debug_that_hides_tokens() {
    let locks = LockManager::in_memory();
    let lock = locks.lock("k");
    shows(&lock, "k");
    let lease = lock.acquire().await.unwrap();
    shows(&lease, "fencing_token");
    shows(&lease.handle(), "fencing_token");
    shows(&locks, "namespace");
    shows(&locks.lock("k").acquire().await.unwrap_err(), "is held by");
    let builder = LockManager::builder().url("redis://:correct-horse@host").namespace("billing");
    shows(&builder, "billing");
    assert!(!format!("{builder:?}").contains("horse"));
}

#[tokio::test]
async fn what_a_main_prints_says_what_to_do() {
    let error = distlock::current().unwrap_err();
    assert!(format!("{error:?}").contains("distlock::init"), "{error:?}");
    let error = LockManager::connect("redis://").await.unwrap_err();
    assert!(format!("{error:?}").starts_with("Config: "), "{error:?}");
}

fn shows(value: &impl Debug, part: &str) {
    let text = format!("{value:?}");
    assert!(text.contains(part), "{text}");
    // A token is a hyphenated UUID.
    let uuid_like = text.split(|c: char| !c.is_ascii_hexdigit() && c != '-').any(|word| word.len() == 36);
    assert!(!uuid_like, "{text}");
}

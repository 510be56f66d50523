//! What a call gives that did not get its lock, or lost it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use distlock::{LockError, LockManager, Outcome, distributed_lock, scope};

#[derive(Debug, thiserror::Error)]
enum AppError {
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error(transparent)]
    Number(#[from] std::num::ParseIntError),
}

#[distributed_lock(key = "k")]
async fn error() -> Result<u8, AppError> {
    Ok(1)
}

#[distributed_lock(key = "k", on_busy = skip, on_error = skip, on_lost = finish)]
async fn unit(ran: &AtomicBool) {
    ran.store(true, Ordering::SeqCst);
}

#[distributed_lock(key = "k", on_busy = skip)]
async fn outcome() -> Result<Outcome<u8>, AppError> {
    Ok(Outcome::Ran(1))
}

#[distributed_lock(key = "k", on_busy = skip, on_error = skip)]
async fn option() -> Result<Option<u8>, AppError> {
    Ok(Some(1))
}

/// Moves one argument, awaits with another, uses `?` and `return`.
#[distributed_lock(
    key = "k",
    on_busy = |busy| {
        tokio::task::yield_now().await;
        let number: u8 = number.parse()?;
        if number == 0 {
            return Ok(owned);
        }
        Ok(format!("{}:{number}", busy.key()))
    },
    on_error = |err| Ok(format!("{owned}:{}", matches!(err, LockError::NotConfigured(_)))),
)]
async fn closures(owned: String, number: &str) -> Result<String, AppError> {
    tokio::task::yield_now().await;
    Ok(owned + number)
}

/// A lease that ends while the body sleeps.
#[distributed_lock(key = "k", ttl = "1s", max_hold = "1s")]
async fn cancelled(finished: &AtomicBool) -> Result<(), LockError> {
    tokio::time::sleep(Duration::from_secs(5)).await;
    finished.store(true, Ordering::SeqCst);
    Ok(())
}

#[distributed_lock(key = "k", ttl = "1s", max_hold = "1s", on_lost = finish)]
async fn finished(finished: &AtomicBool) -> Result<(), LockError> {
    tokio::time::sleep(Duration::from_secs(5)).await;
    finished.store(true, Ordering::SeqCst);
    Ok(())
}

#[distributed_lock(key = "k", ttl = "1s", max_hold = "1s", on_busy = |_| None, on_error = |_| None, on_lost = |lost| Some(lost.key().to_owned()))]
async fn valued() -> Option<String> {
    tokio::time::sleep(Duration::from_secs(5)).await;
    None
}

#[distributed_lock(key = "k", ttl = ttl, wait = wait)]
async fn computed(ttl: Duration, wait: Duration) -> Result<(), LockError> {
    Ok(())
}

#[tokio::test]
async fn a_busy_lock_gives_what_on_busy_says() {
    let locks = LockManager::in_memory();
    let held = locks.lock("k").acquire().await.unwrap();
    scope(locks.clone(), async {
        assert!(matches!(error().await, Err(AppError::Lock(LockError::Busy(_)))));
        let ran = AtomicBool::new(false);
        unit(&ran).await;
        assert!(!ran.load(Ordering::SeqCst));
        assert!(matches!(outcome().await, Ok(Outcome::Skipped(busy)) if busy.key() == "k"));
        assert_eq!(option().await.unwrap(), None);
        assert_eq!(closures("owned".to_owned(), "7").await.unwrap(), "k:7");
        assert_eq!(closures("owned".to_owned(), "0").await.unwrap(), "owned");
        assert!(matches!(closures("owned".to_owned(), "x").await, Err(AppError::Number(_))));
    })
    .await;
    drop(held);
}

#[tokio::test]
async fn a_free_lock_runs_the_body() {
    scope(LockManager::in_memory(), async {
        assert_eq!(error().await.unwrap(), 1);
        let ran = AtomicBool::new(false);
        unit(&ran).await;
        assert!(ran.load(Ordering::SeqCst));
        assert!(matches!(outcome().await, Ok(Outcome::Ran(1))));
        assert_eq!(option().await.unwrap(), Some(1));
        assert_eq!(closures("owned".to_owned(), "7").await.unwrap(), "owned7");
    })
    .await;
}

#[tokio::test]
async fn a_failed_lock_gives_what_on_error_says() {
    assert!(matches!(error().await, Err(AppError::Lock(LockError::NotConfigured(_)))));
    let ran = AtomicBool::new(false);
    unit(&ran).await;
    assert!(!ran.load(Ordering::SeqCst));
    assert!(matches!(outcome().await, Err(AppError::Lock(LockError::NotConfigured(_)))));
    assert_eq!(option().await.unwrap(), None);
    assert_eq!(closures("owned".to_owned(), "7").await.unwrap(), "owned:true");
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_gives_what_on_lost_says() {
    scope(LockManager::in_memory(), async {
        let done = AtomicBool::new(false);
        assert!(matches!(cancelled(&done).await, Err(LockError::Lost(_))));
        assert!(!done.load(Ordering::SeqCst));
        assert!(finished(&done).await.is_ok());
        assert!(done.load(Ordering::SeqCst));
        assert_eq!(valued().await.as_deref(), Some("k"));
    })
    .await;
}

#[tokio::test]
async fn a_computed_setting_that_cannot_be_is_an_error_of_the_call() {
    scope(LockManager::in_memory(), async {
        let second = Duration::from_secs(1);
        assert!(computed(second, Duration::ZERO).await.is_ok());
        assert!(computed(second, Duration::MAX).await.is_ok());
        assert!(matches!(computed(Duration::ZERO, second).await, Err(LockError::Config(_))));
        assert!(matches!(computed(Duration::MAX, second).await, Err(LockError::Config(_))));
    })
    .await;
}

// ----- map_err -----

#[derive(Debug, PartialEq)]
enum Foreign {
    Locked(String),
    Other,
}

impl Foreign {
    fn from_lock(err: LockError) -> Self {
        Self::Locked(err.to_string())
    }
}

#[distributed_lock(key = "k", map_err = Foreign::from_lock)]
async fn mapped(ok: bool) -> Result<u8, Foreign> {
    if ok { Ok(1) } else { Err(Foreign::Other) }
}

#[distributed_lock(key = "k", map_err = Boxed::Lock, on_busy = skip)]
async fn mapped_and_skipped() -> Result<Option<u8>, Boxed> {
    Ok(Some(1))
}

#[derive(Debug)]
#[allow(dead_code, reason = "only its form matters")]
enum Boxed {
    Lock(LockError),
}

/// Has a `From` that is not used.
#[distributed_lock(key = "k", ttl = "1s", max_hold = "1s", map_err = number)]
async fn mapped_on_loss() -> Result<impl Iterator<Item = u8>, AppError> {
    tokio::time::sleep(Duration::from_secs(5)).await;
    Ok([1].into_iter())
}

fn number(err: LockError) -> AppError {
    assert!(err.is_lost());
    "x".parse::<u8>().unwrap_err().into()
}

#[tokio::test(start_paused = true)]
async fn a_foreign_error_is_made_by_the_function_that_is_named() {
    let locks = LockManager::in_memory();
    scope(locks.clone(), async {
        assert_eq!(mapped(true).await, Ok(1));
        assert_eq!(mapped(false).await, Err(Foreign::Other));
        assert!(matches!(mapped_on_loss().await.err(), Some(AppError::Number(_))));
        let held = locks.lock("k").acquire().await.unwrap();
        assert!(matches!(mapped(true).await, Err(Foreign::Locked(text)) if text.contains('k')));
        assert_eq!(mapped_and_skipped().await.unwrap(), None);
        held.release().await.unwrap();
        assert_eq!(mapped_and_skipped().await.unwrap(), Some(1));
    })
    .await;
    assert!(matches!(mapped_and_skipped().await, Err(Boxed::Lock(LockError::NotConfigured(_)))));
    assert!(matches!(mapped(true).await, Err(Foreign::Locked(_))));
}

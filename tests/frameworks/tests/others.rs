//! `#[instrument]`, test attributes and test generators.

use distlock::{LockError, LockManager, distributed_lock, scope};
use rstest::rstest;
use tracing::instrument;

#[instrument(skip(secret), err)]
#[distributed_lock(key = "k:{id}")]
async fn below(id: u32, secret: String) -> Result<u32, LockError> {
    drop(secret);
    tokio::task::yield_now().await;
    Ok(id)
}

#[distributed_lock(key = "k:{id}", lease = lease)]
#[instrument(skip_all, fields(id), ret)]
async fn above(id: u32, secret: String) -> Result<u32, LockError> {
    drop(secret);
    tokio::task::yield_now().await;
    Ok(id + u32::try_from(lease.key().len()).unwrap_or(0))
}

struct Shop;

impl Shop {
    #[distributed_lock(key = "k:{id}")]
    #[instrument(skip(self))]
    async fn method(&self, id: u32) -> Result<u32, LockError> {
        Ok(id)
    }
}

#[tokio::test]
async fn instrumented_on_either_side() {
    scope(LockManager::in_memory(), async {
        assert_eq!(below(1, String::new()).await.unwrap(), 1);
        assert_eq!(above(1, String::new()).await.unwrap(), 4);
        assert_eq!(Shop.method(2).await.unwrap(), 2);
    })
    .await;
}

fn locks() -> LockManager {
    LockManager::in_memory()
}

#[distributed_lock(key = "a test of its own", manager = locks())]
#[tokio::test]
async fn a_test_can_be_locked() -> Result<(), LockError> {
    tokio::task::yield_now().await;
    Ok(())
}

#[distributed_lock(key = "case:{n}", manager = locks())]
#[rstest]
#[case(1)]
#[case(2)]
#[tokio::test]
async fn generated_tests_can_be_locked(#[case] n: u32) -> Result<(), LockError> {
    tokio::task::yield_now().await;
    assert!(n > 0);
    Ok(())
}

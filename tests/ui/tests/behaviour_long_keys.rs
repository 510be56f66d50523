//! A program may have locks that are kept for longer than one of its managers allows.

use std::time::Duration;

use distlock::{LockError, LockManager, distributed_lock};

#[distributed_lock(key = "message:{id}", after_ok = keep("24h"))]
async fn once(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[tokio::test]
async fn the_manager_is_built_and_its_call_says_it() {
    let locks = LockManager::builder().url("memory:").max_ttl(Duration::from_secs(600)).build().await.unwrap();
    locks.lock("another").run(async |_| ()).await.unwrap();
    match distlock::scope(&locks, once(1)).await {
        Err(LockError::Config(refused)) => assert!(refused.to_string().contains("max_ttl"), "{refused}"),
        other => panic!("{other:?}"),
    }
    distlock::scope(LockManager::in_memory(), once(1)).await.unwrap();
}

//! A `main` that runs under a lock names its manager.

use distlock::{LockError, LockManager, distributed_lock};

async fn connected() -> Result<LockManager, LockError> {
    Ok(LockManager::in_memory())
}

#[distributed_lock(key = "order", manager = connected().await?)]
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), LockError> {
    Ok(())
}

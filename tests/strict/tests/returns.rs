//! The lint that wants every `return` written out contradicts others, so it has a crate of its own.
#![deny(warnings, clippy::implicit_return)]
#![allow(clippy::needless_return, reason = "it says the opposite")]
#![allow(unused_crate_dependencies, reason = "the dependencies are the library's")]

use distlock::{LockError, LockManager, distributed_lock, scope};

#[distributed_lock(key = "a:{id}", on_busy = |busy| { return Ok(busy.key().len()); }, lease = lease)]
async fn claim(id: usize) -> Result<usize, LockError> {
    lease.ensure_held()?;
    return Ok(id);
}

#[tokio::test]
async fn it_runs() {
    assert_eq!(scope(LockManager::in_memory(), claim(1)).await.unwrap(), 1);
}

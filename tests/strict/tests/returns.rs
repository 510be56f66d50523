//! The lint that wants every `return` written out contradicts others, so it has a crate of its own.
#![deny(warnings, clippy::implicit_return)]
#![allow(clippy::needless_return, reason = "it says the opposite")]
#![allow(unused_crate_dependencies, reason = "the dependencies are the library's")]

use distlock::{KeySegment, LockError, LockKey, LockManager, distributed_lock, scope};

#[distributed_lock(key = "a:{id}", on_busy = |busy| { return Ok(busy.key().len()); }, lease = lease)]
async fn claim(id: usize) -> Result<usize, LockError> {
    lease.ensure_held()?;
    return Ok(id);
}

#[derive(KeySegment)]
struct CartId(u64);

#[derive(KeySegment, Clone, Copy)]
enum Region {
    Eu,
}

#[derive(LockKey)]
#[lock(key = "cart:{region}:{id}", ttl = "5s")]
struct CartLock<'a> {
    region: Region,
    id: &'a CartId,
}

#[distributed_lock(CartLock { region, id: &id }, lease = lease)]
async fn typed(region: Region, id: CartId) -> Result<String, LockError> {
    let CartId(_) = id;
    return Ok(lease.key().to_owned());
}

#[tokio::test]
async fn it_runs() {
    assert_eq!(scope(LockManager::in_memory(), claim(1)).await.unwrap(), 1);
    assert_eq!(scope(LockManager::in_memory(), typed(Region::Eu, CartId(7))).await.unwrap(), "cart:Eu:7");
}

// catalogue derive-static
use distlock::{Lease, LockKey, LockManager};

#[derive(LockKey)]
#[lock(key = "coupon:{id}")]
struct CouponLock<T> { id: T }

fn held(locks: &LockManager, id: &str) {
    let lock = locks.lock(CouponLock { id });
    let _ = async { let _lease: Lease<CouponLock<&str>> = lock.acquire().await.unwrap(); };
}

fn main() { held(&LockManager::in_memory(), "a"); }

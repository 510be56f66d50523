// catalogue token-of-several
use distlock::{LockError, LockKey, distributed_lock};

#[derive(LockKey)]
#[lock(key = "coupon:{id}")]
struct CouponLock { id: u64 }

#[derive(LockKey)]
#[lock(key = "order:{id}")]
struct OrderLock { id: u64 }

#[distributed_lock([OrderLock { id }, CouponLock { id }], lease = lease)]
async fn cancel(id: u64) -> Result<u64, LockError> {
    Ok(lease.fencing_token())
}

fn main() { drop(cancel(1)); }

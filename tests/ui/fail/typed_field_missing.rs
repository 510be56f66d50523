// catalogue typed-missing
use distlock::{LockError, LockKey, distributed_lock};

#[derive(LockKey)]
#[lock(key = "coupon:{campaign}:{user}")]
struct CouponLock { campaign: u64, user: u64 }

#[distributed_lock(CouponLock { campaign })]
async fn claim(campaign: u64, user: u64) -> Result<u64, LockError> { Ok(user) }

fn main() { drop(claim(1, 2)); }

// catalogue typed-unknown
use distlock::{LockError, LockKey, distributed_lock};

#[derive(LockKey)]
#[lock(key = "coupon:{campaign}:{user}")]
struct CouponLock { campaign: u64, user: u64 }

#[distributed_lock(CouponLock { campaign, user, shop: 1 })]
async fn claim(campaign: u64, user: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1, 2)); }

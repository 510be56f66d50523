// catalogue derive-no-key
use distlock::{LockError, LockKey, distributed_lock};

#[derive(LockKey)]
struct CouponLock { campaign: u64 }

#[distributed_lock(CouponLock { campaign })]
async fn claim(campaign: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

// catalogue typed-not-declared
use distlock::{LockError, distributed_lock};

struct CouponLock { campaign: u64 }

#[distributed_lock(CouponLock { campaign })]
async fn claim(campaign: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

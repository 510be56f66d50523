// catalogue derive-segment
use distlock::LockKey;

#[derive(LockKey)]
#[lock(key = "coupon:{ids}")]
struct CouponLock { ids: Vec<u64> }

fn main() { drop(CouponLock { ids: Vec::new() }); }

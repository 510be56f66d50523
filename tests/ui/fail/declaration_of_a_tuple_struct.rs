// catalogue derive-tuple
use distlock::LockKey;

#[derive(LockKey)]
#[lock(key = "coupon:{0}")]
struct CouponLock(u64);

fn main() { drop(CouponLock(1)); }

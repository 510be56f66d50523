// catalogue derive-settings
use distlock::LockKey;

#[derive(LockKey)]
#[lock(key = "coupon:{id}", ttl = "5")]
struct CouponLock { id: u64 }

fn main() { drop(CouponLock { id: 1 }); }

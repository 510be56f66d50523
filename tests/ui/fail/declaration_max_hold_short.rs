// catalogue derive-settings
use distlock::LockKey;

#[derive(LockKey)]
#[lock(key = "coupon:{id}", ttl = "5s", max_hold = "1s")]
struct CouponLock { id: u64 }

fn main() { drop(CouponLock { id: 1 }); }

// catalogue derive-permits
use distlock::LockKey;

#[derive(LockKey)]
#[lock(key = "coupon:{id}", permits = 3)]
struct CouponLock { id: u64 }

fn main() { drop(CouponLock { id: 1 }); }

// catalogue derive-unused
use distlock::LockKey;

#[derive(LockKey)]
#[lock(key = "coupon:{campaign}")]
struct CouponLock { campaign: u64, user: u64 }

fn main() { drop(CouponLock { campaign: 1, user: 1 }); }

// catalogue derive-unknown
use distlock::LockKey;

#[derive(LockKey)]
#[lock(key = "coupon:{campagn}:{user}")]
struct CouponLock { campaign: u64, user: u64 }

fn main() { drop(CouponLock { campaign: 1, user: 1 }); }

// catalogue derive-settings
use std::time::Duration;

use distlock::LockKey;

#[derive(LockKey)]
#[lock(key = "coupon:{id}", ttl = Duration::from_secs(5))]
struct CouponLock { id: u64 }

fn main() { drop(CouponLock { id: 1 }); }

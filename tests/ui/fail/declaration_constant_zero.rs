// catalogue derive-settings
use std::time::Duration;

use distlock::LockKey;

const TTL: Duration = Duration::ZERO;

#[derive(LockKey)]
#[lock(key = "coupon:{id}", ttl = TTL)]
struct CouponLock { id: u64 }

fn main() { drop(CouponLock { id: 1 }); }

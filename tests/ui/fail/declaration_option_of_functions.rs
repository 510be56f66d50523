// catalogue derive-option
use distlock::LockKey;

#[derive(LockKey)]
#[lock(key = "coupon:{id}", on_busy = skip)]
struct CouponLock { id: u64 }

fn main() { drop(CouponLock { id: 1 }); }

// catalogue derive-witness
use distlock::LockKey;

#[derive(LockKey)]
#[lock(key = "coupon:{id}", witness = CouponHeld)]
struct CouponLock { id: u64 }

fn main() { drop(CouponLock { id: 1 }); }

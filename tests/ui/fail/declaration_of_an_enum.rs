// catalogue derive-enum
use distlock::LockKey;

#[derive(LockKey)]
#[lock(key = "coupon")]
enum Locks { Coupon }

fn main() { drop(Locks::Coupon); }

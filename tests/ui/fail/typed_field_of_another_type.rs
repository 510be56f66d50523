// catalogue typed-mistyped
use distlock::{LockError, LockKey, distributed_lock};

struct Req { user: String }

#[derive(LockKey)]
#[lock(key = "coupon:{campaign}:{user}")]
struct CouponLock { campaign: u64, user: u64 }

#[distributed_lock(CouponLock { campaign, user: &req.user })]
async fn claim(campaign: u64, req: Req) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1, Req { user: String::new() })); }

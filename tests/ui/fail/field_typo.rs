// catalogue 14
use distlock::{LockError, distributed_lock};

struct User { id: u64 }

#[distributed_lock(key = "coupon:{user.idd}")]
async fn claim(user: User) -> Result<u64, LockError> { Ok(user.id) }

fn main() { drop(claim(User { id: 1 })); }

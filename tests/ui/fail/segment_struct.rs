// catalogue 15
use distlock::{LockError, distributed_lock};

struct User;

#[distributed_lock(key = "coupon:{user}")]
async fn claim(user: User) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(User)); }

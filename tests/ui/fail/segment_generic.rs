// catalogue also-debug
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "coupon:{id}")]
async fn claim(id: impl std::fmt::Display) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

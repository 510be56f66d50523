// catalogue D6-spec-type
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "coupon:{id:04}")]
async fn claim(id: &str) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim("")); }

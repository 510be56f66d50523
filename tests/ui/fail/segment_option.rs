// catalogue also-option
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "coupon:{id}")]
async fn claim(id: Option<u64>) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(Some(1))); }

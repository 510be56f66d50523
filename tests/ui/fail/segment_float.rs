// catalogue also-float
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "coupon:{id}:{id}")]
async fn claim(id: f64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1.0)); }

// catalogue D6-pointer
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "coupon:{id}")]
async fn claim(id: &Box<f32>) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(&Box::new(1.0))); }

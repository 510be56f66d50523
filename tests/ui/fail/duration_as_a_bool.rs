// catalogue D5-duration-form
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}", ttl = true)]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

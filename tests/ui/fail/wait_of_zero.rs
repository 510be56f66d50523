// catalogue D5-wait-zero
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}", wait = 0)]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

// catalogue D5-crate
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}", ttl = "5s", crate = lockd)]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

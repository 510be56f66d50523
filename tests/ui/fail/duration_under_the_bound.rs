// catalogue 48
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}", ttl = "9ms")]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

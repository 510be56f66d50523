// catalogue 27
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "a" ttl = "5s")]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

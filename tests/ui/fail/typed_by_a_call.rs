// catalogue typed-not-declared
use distlock::{LockError, distributed_lock};

#[distributed_lock(OrderLock::new(id), ttl = "5s")]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

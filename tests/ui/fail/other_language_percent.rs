// catalogue also-braces
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "hotel:{%s}")]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

// catalogue M25
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "a:{🦀}")]
async fn claim(a: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

// catalogue 22
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "a:{id + 1}")]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

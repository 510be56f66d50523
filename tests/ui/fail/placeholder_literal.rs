// catalogue 22
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "a:{\"lit\"}")]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

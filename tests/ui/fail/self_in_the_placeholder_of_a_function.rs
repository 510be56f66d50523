// catalogue 23
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{self}")]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

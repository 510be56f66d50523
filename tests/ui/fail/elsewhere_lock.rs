// catalogue 2
use distlock::{LockError, distributed_lock};

#[distributed_lock(lock = "order:{id}")]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

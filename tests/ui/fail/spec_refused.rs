// catalogue 21
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id:?}:{id:>4}:{id:.2}:{id:#}:{id:00}:{id:04z}")]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

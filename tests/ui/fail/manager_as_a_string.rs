// catalogue D5-manager
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}", manager = "redis://localhost")]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

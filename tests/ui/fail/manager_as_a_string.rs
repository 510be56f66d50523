// a string where the manager should be
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}", manager = "redis://localhost")]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

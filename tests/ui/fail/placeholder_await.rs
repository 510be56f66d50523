// catalogue 20
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{load().await}")]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

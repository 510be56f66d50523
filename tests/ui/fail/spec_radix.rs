// catalogue 21
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id:04z}")]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

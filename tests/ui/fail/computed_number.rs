// catalogue D5-computed
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = id, label = "order")]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

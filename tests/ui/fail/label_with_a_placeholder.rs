// catalogue D5-label-form
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}", label = "order:{id}")]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

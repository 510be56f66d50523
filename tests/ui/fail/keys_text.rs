// catalogue D5-keys-form
use distlock::{LockError, distributed_lock};

#[distributed_lock(keys = "order:{id}")]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

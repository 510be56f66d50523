// catalogue D5-keys-element
use distlock::{LockError, distributed_lock};

#[distributed_lock(keys = ["order:{id}", id])]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

// catalogue D5-keys-element
use distlock::{LockError, distributed_lock};

#[distributed_lock(keys = ["order:{id}", 5])]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

// catalogue D5-key-list
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = ["a", "b"])]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

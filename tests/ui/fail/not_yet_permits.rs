// catalogue D5-not-yet
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}", permits = 3)]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

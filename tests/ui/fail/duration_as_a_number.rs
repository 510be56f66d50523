// catalogue 6
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}", wait = 5)]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

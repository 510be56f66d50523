// catalogue D5-lint
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}", allow(dead_code))]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

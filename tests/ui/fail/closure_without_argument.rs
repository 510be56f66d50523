// catalogue D5-closure-arguments
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}", on_error = || Ok(()))]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

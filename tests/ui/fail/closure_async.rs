// catalogue D5-closure-async
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}", on_busy = async |_| Ok(()))]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

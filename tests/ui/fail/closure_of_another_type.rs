// catalogue D5-closure-value
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}", on_busy = |busy| busy.waited())]
async fn claim(id: u64) -> Result<u32, LockError> { Ok(1) }

fn main() { drop(claim(1)); }

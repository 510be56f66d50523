// catalogue also-skip
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}", on_busy = skip)]
async fn claim(id: u64) -> Result<u32, LockError> { Ok(1) }

fn main() { drop(claim(1)); }

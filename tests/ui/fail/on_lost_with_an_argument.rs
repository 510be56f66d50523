// catalogue D5-on-lost-argument
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}", on_lost = |_| Ok(id))]
async fn claim(id: u64) -> Result<u64, LockError> { Ok(id) }

fn main() { drop(claim(1)); }

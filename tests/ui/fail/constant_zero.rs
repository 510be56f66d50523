// catalogue 9
use distlock::{LockError, distributed_lock};

const TTL: std::time::Duration = std::time::Duration::ZERO;

#[distributed_lock(key = "order:{id}", ttl = TTL)]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

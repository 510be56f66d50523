// catalogue 10
use distlock::{LockError, distributed_lock};

const TTL: u64 = 5;

#[distributed_lock(key = "order:{id}", ttl = TTL)]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

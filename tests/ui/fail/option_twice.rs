// catalogue 4
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}", ttl = "5s", ttl = "6s")]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

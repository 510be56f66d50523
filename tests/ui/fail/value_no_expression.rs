// catalogue D5-value
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}", ttl = +)]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

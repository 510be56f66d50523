// catalogue D5-renew-zero
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}", renew = "0s", ttl = "5s")]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

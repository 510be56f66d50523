// catalogue also-renew
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}", ttl = "5s", renew = "3s")]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

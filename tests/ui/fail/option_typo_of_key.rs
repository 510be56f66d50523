// catalogue M13
use distlock::{LockError, distributed_lock};

#[distributed_lock(kee = "order:{id}", ttl = "5s")]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

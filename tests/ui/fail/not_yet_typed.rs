// catalogue D5-not-yet
use distlock::{LockError, distributed_lock};

#[distributed_lock(Order { id }, ttl = "5s")]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

// catalogue also-percent
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "hotel:%d")]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

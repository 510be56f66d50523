// catalogue also-name
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "hotel:id")]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

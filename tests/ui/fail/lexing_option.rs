// catalogue M25
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "a", 'a = 3)]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

// catalogue D5-elsewhere
use distlock::{LockError, distributed_lock};

#[distributed_lock(name = "x")]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

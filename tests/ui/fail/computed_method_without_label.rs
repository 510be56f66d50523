// catalogue D5-label
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = id.to_string())]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

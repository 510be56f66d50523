// catalogue D6-letters
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}x%{id}")]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

// catalogue D6-positional
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{0}")]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

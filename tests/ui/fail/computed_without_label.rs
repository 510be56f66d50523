// catalogue D5-label
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = format!("order:{id}"))]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

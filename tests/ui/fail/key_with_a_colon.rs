// catalogue D5-colon
use distlock::{LockError, distributed_lock};

#[distributed_lock(key: "order:{id}")]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

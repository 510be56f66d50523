// catalogue D5-one-source
use distlock::{LockError, distributed_lock};

#[distributed_lock(keys = ["a", "b"], key = "order:{id}")]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

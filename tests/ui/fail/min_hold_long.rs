// catalogue also-min-hold
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}", min_hold = "5s", max_hold = "1s")]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

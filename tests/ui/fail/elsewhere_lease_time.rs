// catalogue D5-elsewhere
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}", lease_time = "5s")]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

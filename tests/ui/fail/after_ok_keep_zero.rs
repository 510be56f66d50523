// catalogue D5-after-bounds
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}", after_ok = keep("0s"))]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

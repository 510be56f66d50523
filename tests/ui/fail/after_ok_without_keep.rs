// catalogue D5-after
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}", after_ok = "24h")]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

// catalogue D5-after-bounds
use distlock::{LockError, distributed_lock};

const DAYS: std::time::Duration = std::time::Duration::from_secs(3 * 24 * 3600);

#[distributed_lock(key = "order:{id}", after_ok = keep(DAYS))]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

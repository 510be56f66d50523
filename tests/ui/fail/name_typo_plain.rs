// catalogue 12
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "coupon:{campagn}:{id:04}")]
async fn claim(campaign: u64, id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1, 2)); }

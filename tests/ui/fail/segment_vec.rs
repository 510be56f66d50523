// catalogue 16
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "coupon:{ids}")]
async fn claim(ids: Vec<u8>) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(vec![])); }

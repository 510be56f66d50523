// catalogue D5-lints
#![deny(warnings)]
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}")]
async fn claim(id: u64) -> Result<u64, LockError> {
    return Ok(id);
    Ok(1)
}

fn main() { drop(claim(1)); }

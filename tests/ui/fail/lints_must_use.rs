// catalogue D5-lints
#![deny(warnings)]
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}")]
async fn claim(id: u64) -> Result<u64, LockError> {
    "1".parse::<u64>();
    Ok(id)
}

fn main() { drop(claim(1)); }

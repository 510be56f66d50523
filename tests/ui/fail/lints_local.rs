// catalogue D5-lints
#![deny(warnings)]
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}")]
async fn claim(id: u64) -> Result<u64, LockError> {
    let nothing = 1;
    Ok(id)
}

fn main() { drop(claim(1)); }

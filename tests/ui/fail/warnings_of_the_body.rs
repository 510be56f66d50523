// lints of the user still fire
#![deny(warnings)]
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}")]
async fn claim(id: u64, unused: u64, mut also: u64) -> Result<u64, LockError> {
    let nothing = 1;
    return Ok(also);
    Ok(id)
}

fn main() { drop(claim(1, 2, 3)); }

// catalogue D5-lints
#![deny(warnings)]
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}")]
async fn claim(id: u64, unused: u64) -> Result<u64, LockError> { Ok(id) }

fn main() { drop(claim(1, 2)); }

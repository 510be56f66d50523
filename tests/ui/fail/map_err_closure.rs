// catalogue D5-map-err
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}", map_err = |err| err)]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

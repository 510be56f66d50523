// options of later versions
use distlock::{LockError, distributed_lock};

#[distributed_lock(keys = ["a", "b"])]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

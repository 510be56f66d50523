// catalogue 26
use distlock::{LockError, distributed_lock};

#[distributed_lock(keys)]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

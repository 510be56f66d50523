// catalogue D5-elsewhere
use distlock::{LockError, distributed_lock};

#[distributed_lock(convert = "x")]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

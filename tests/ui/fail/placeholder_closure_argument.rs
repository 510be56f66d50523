// catalogue 22
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "a:{id.max(|x| x)}")]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

// catalogue 25
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = b"order")]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

// catalogue 46
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}")]
#[distributed_lock(key = "shop")]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

// catalogue 1
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}", map_er = text)]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

// catalogue D5-closure-type
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}", on_lost = |lost| -> Result<(), LockError> { Ok(()) })]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

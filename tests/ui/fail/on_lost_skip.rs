// catalogue D5-on-lost-word
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}", on_lost = skip)]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

// catalogue also-name
use distlock::{LockError, distributed_lock};

#[distributed_lock(keys = ["hotel:{id}", "user:name"])]
async fn claim(id: u64, name: &str) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1, "x")); }

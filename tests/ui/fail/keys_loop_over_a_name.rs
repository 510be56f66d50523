// catalogue D5-keys-loop
use distlock::{LockError, distributed_lock};

#[distributed_lock(keys(for id in &ids => id))]
async fn claim(ids: Vec<u64>) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(vec![])); }

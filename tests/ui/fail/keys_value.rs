// catalogue D5-keys-form
use distlock::{LockError, distributed_lock};

#[distributed_lock(keys = ids)]
async fn claim(ids: Vec<u64>) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(vec![])); }

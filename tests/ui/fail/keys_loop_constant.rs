// catalogue D5-keys-same
use distlock::{LockError, distributed_lock};

#[distributed_lock(keys(for item in &ids => "orders"))]
async fn claim(ids: Vec<u64>) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(vec![])); }

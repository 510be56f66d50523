// catalogue D5-keys-items
use distlock::{LockError, distributed_lock};

#[distributed_lock(keys(for item in id => "order:{item}"))]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

// catalogue D5-lint
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}", allow(literal_arg_nam))]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

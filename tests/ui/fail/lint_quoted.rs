// catalogue D5-lint-form
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}", allow("literal_arg_name"))]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

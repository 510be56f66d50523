// options of later versions
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}", label = "order", when = true, mode = shared, allow(literal_arg_name))]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

// catalogue 43
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}", after_ok = relase)]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

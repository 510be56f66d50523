// catalogue 40
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}")]
fn claim(id: u64) -> impl Future<Output = Result<(), LockError>> { async move { Ok(()) } }

fn main() { drop(claim(1)); }

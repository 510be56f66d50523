// catalogue 33
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}")]
async fn claim(id: u64) -> impl Send { let _: Option<LockError> = None; 1 }

fn main() { drop(claim(1)); }

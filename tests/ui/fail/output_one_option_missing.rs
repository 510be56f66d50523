// catalogue 33
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}", on_busy = skip, on_error = |_| None)]
async fn claim(id: u64) -> Option<LockError> { None }

fn main() { drop(claim(1)); }

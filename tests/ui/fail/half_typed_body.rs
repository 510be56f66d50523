// catalogue 42
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}")]
async fn claim(id: u64) -> Result<(), LockError> { let text = String::new(); let _ = text.; Ok(()) }

fn main() { drop(claim(1)); }

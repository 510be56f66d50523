// catalogue D5-on-lost-argument
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}", on_lost = |_| Ok(format!("lost {id:04}")))]
async fn claim(id: u64) -> Result<String, LockError> { Ok(id.to_string()) }

fn main() { drop(claim(1)); }

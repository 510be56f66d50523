// catalogue also-join-handle
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}")]
async fn claim(id: u64) -> Result<tokio::task::JoinHandle<()>, LockError> { Ok(tokio::spawn(async {})) }

fn main() { drop(claim(1)); }

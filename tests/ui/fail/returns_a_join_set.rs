// catalogue also-join-handle
use distlock::{LockError, distributed_lock};
use tokio::task::JoinSet;

#[distributed_lock(key = "order:{id}")]
async fn claim(id: u64) -> Result<JoinSet<()>, LockError> { Ok(JoinSet::new()) }

fn main() { drop(claim(1)); }

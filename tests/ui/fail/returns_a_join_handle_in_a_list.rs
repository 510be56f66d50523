// catalogue also-join-handle
use distlock::{LockError, distributed_lock};
use tokio::task::JoinHandle;

#[distributed_lock(key = "order:{id}")]
async fn claim(id: u64) -> Result<Vec<JoinHandle<()>>, LockError> { Ok(vec![tokio::spawn(async {})]) }

fn main() { drop(claim(1)); }

// catalogue also-join-handle
use distlock::{LockError, distributed_lock};
use tokio::task::JoinHandle;

#[distributed_lock(key = "order:{id}")]
async fn claim(id: u64) -> Result<(u64, JoinHandle<()>), LockError> { Ok((id, tokio::spawn(async {}))) }

fn main() { drop(claim(1)); }

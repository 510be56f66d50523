// catalogue D5-lease-moved
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}", lease = lease)]
async fn claim(id: u64) -> Result<(), LockError> {
    let task = tokio::spawn(async move { lease.is_held() });
    drop(task.await);
    Ok(())
}

fn main() { drop(claim(1)); }

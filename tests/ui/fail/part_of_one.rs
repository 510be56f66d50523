// catalogue part-of-one
use distlock::{LockError, LockKey, distributed_lock};

#[derive(LockKey)]
#[lock(key = "order:{id}")]
struct OrderLock { id: u64 }

#[distributed_lock(OrderLock { id }, lease = lease)]
async fn cancel(id: u64) -> Result<u64, LockError> {
    Ok(lease.part::<OrderLock>().fencing_token())
}

fn main() { drop(cancel(1)); }

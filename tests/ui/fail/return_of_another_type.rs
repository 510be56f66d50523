// catalogue 35
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}")]
async fn claim(id: u64) -> Result<u32, LockError> {
    if id == 1 {
        return id;
    }
    Ok(1)
}

fn main() { drop(claim(1)); }

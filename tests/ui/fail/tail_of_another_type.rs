// catalogue 35
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}")]
async fn claim(id: u64) -> Result<u32, LockError> {
    "text"
}

fn main() { drop(claim(1)); }

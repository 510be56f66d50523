// catalogue D6-extractor
use distlock::{LockError, distributed_lock};

struct Path<T>(T);

#[distributed_lock(key = "coupon:{id}")]
async fn claim(id: Path<u64>) -> Result<(), LockError> { Ok(drop(id.0)) }

fn main() { drop(claim(Path(1))); }

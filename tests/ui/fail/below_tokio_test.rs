// catalogue 29
use distlock::{LockError, distributed_lock};

#[tokio::test]
#[distributed_lock(key = "order")]
async fn claim() -> Result<(), LockError> { Ok(()) }

fn main() {}

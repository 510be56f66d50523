// catalogue 29
use distlock::{LockError, distributed_lock};

#[tokio::main]
#[distributed_lock(key = "order")]
async fn main() -> Result<(), LockError> { Ok(()) }

 

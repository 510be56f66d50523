// catalogue 34
use distlock::{LockError, distributed_lock};

#[derive(Debug)]
struct AppError;

#[distributed_lock(key = "order:{id}")]
async fn claim(id: u64) -> Result<u32, AppError> { let _: Option<LockError> = None; Err(AppError) }

fn main() { drop(claim(1)); }

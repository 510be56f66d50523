// catalogue also-boxed-future
use std::pin::Pin;

use distlock::{LockError, distributed_lock};

type Answer<T> = Result<T, LockError>;

#[distributed_lock(key = "order:{id}")]
async fn claim(id: u64) -> Answer<impl FnOnce() -> Pin<Box<dyn Future<Output = u64>>>> {
    Ok(move || -> Pin<Box<dyn Future<Output = u64>>> { Box::pin(async move { id }) })
}

fn main() { drop(claim(1)); }

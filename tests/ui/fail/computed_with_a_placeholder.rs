// catalogue also-name
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = concat!("order:", "{id}"), label = "order")]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

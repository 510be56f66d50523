// catalogue also-stream
use distlock::{LockError, distributed_lock};

trait Stream {
    type Item;
}

struct Numbers;

impl Stream for Numbers {
    type Item = u64;
}

#[distributed_lock(key = "order:{id}")]
async fn claim(id: u64) -> Result<impl Stream<Item = u64>, LockError> { Ok(Numbers) }

fn main() { drop(claim(1)); }

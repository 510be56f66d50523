// catalogue also-transaction
use distlock::{LockError, distributed_lock};

struct Transaction<'a, D>(&'a D);

#[distributed_lock(key = "order:{id}")]
async fn claim(id: u64, tx: &mut Transaction<'_, u8>) -> Result<(), LockError> { drop((id, tx)); Ok(()) }

fn main() { drop(claim(1, &mut Transaction(&1))); }

// catalogue D5-on-lost-argument
use distlock::{LockError, distributed_lock};

struct Claim {
    id: u64,
    key: String,
}

#[distributed_lock(key = "order:{id}", on_lost = |lost| Ok(Claim { id, key: lost.key().to_owned() }))]
async fn claim(id: u64) -> Result<Claim, LockError> { Ok(Claim { id, key: String::new() }) }

fn main() { drop(claim(1)); }

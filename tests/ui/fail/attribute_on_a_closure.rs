// catalogue 45
use distlock::distributed_lock;

#[distributed_lock(key = "order:{id}")]
static CLAIM: fn(u64) -> u64 = |id| id;

fn main() {}

// catalogue 33
use distlock::distributed_lock;

#[distributed_lock(key = "order:{id}")]
async fn claim(id: u64) -> u32 { 1 }

fn main() { drop(claim(1)); }

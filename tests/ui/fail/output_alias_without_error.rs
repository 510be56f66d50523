// catalogue 33
use distlock::distributed_lock;

type Maybe = Option<u64>;

#[distributed_lock(key = "order:{id}")]
async fn claim(id: u64) -> Maybe { None }

fn main() { drop(claim(1)); }

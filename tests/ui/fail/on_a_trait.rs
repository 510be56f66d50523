// catalogue 31
use distlock::distributed_lock;

#[distributed_lock(key = "order:{id}")]
trait Claims {}

fn main() {}

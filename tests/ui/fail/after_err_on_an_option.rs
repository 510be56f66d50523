// catalogue also-after
use distlock::distributed_lock;

#[distributed_lock(key = "order:{id}", on_busy = skip, on_error = skip, on_lost = finish, after_err = keep("1h"))]
async fn claim(id: u64) -> Option<u64> { Some(1) }

fn main() { drop(claim(1)); }

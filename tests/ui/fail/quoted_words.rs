// words in quotes
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}", wait = "forever", on_busy = "skip", on_error = "error", on_lost = "finish", renew = "off", reentrant = "allow", manager = "locks")]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

// catalogue D5-skip-outcome
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}", on_busy = skip, on_error = skip)]
async fn claim(id: u64) -> Result<distlock::Outcome<u32>, LockError> { Ok(distlock::Outcome::Ran(1)) }

fn main() { drop(claim(1)); }

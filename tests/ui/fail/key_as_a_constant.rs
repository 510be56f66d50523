// catalogue M26
use distlock::{LockError, distributed_lock};

const NIGHTLY: &str = "nightly";

#[distributed_lock(key = NIGHTLY)]
async fn clean_up() -> Result<(), LockError> { Ok(()) }

fn main() { drop(clean_up()); }

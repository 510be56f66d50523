// catalogue 31
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}")]
pub struct Claim;

fn main() { let _: Option<LockError> = None; let _ = Claim; }

// catalogue 31
use distlock::{LockError, distributed_lock};

struct Claim;

#[distributed_lock(key = "order:{id}")]
impl Claim { async fn claim(&self) -> Result<(), LockError> { Ok(()) } }

fn main() { drop(Claim.claim()); }

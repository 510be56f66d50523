// catalogue D6-static
use distlock::{LockError, distributed_lock};

#[allow(non_upper_case_globals)]
static region: &str = "eu";

#[distributed_lock(key = "coupon:{region}:{id}")]
async fn claim(id: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

// catalogue 13
use distlock::{LockError, distributed_lock};

const CAMPAIGN: &str = "x";

#[distributed_lock(key = "coupon:{CAMPAIGM}:{id}")]
async fn claim(id: u64) -> Result<&'static str, LockError> { Ok(CAMPAIGN) }

fn main() { drop(claim(1)); }

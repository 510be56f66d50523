// catalogue 38
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{url}", manager = url)]
async fn claim(url: String) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(String::new())); }

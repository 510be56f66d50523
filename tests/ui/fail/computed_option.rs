// catalogue D5-computed
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = name, label = "order")]
async fn claim(name: Option<String>) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(None)); }

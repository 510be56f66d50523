// catalogue 12
use distlock::{LockError, distributed_lock};

#[distributed_lock(keys(for item in &ids => "order:{itm}"))]
async fn claim(ids: Vec<u64>) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(vec![])); }

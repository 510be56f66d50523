// catalogue segment-derive
use distlock::{KeySegment, LockError, distributed_lock};

#[derive(KeySegment)]
enum Owner { User(u64), Nobody }

#[distributed_lock(key = "own:{owner}")]
async fn own(owner: Owner) -> Result<(), LockError> { Ok(()) }

fn main() { drop((own(Owner::User(1)), own(Owner::Nobody))); }

// catalogue D5-map-err-type
use distlock::{LockError, distributed_lock};

fn text(err: LockError) -> String { err.to_string() }

#[distributed_lock(key = "order:{id}", map_err = text)]
async fn claim(id: u64) -> Result<(), u8> { Ok(()) }

fn main() { drop(claim(1)); }

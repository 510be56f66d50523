// catalogue D5-map-err-unused
use distlock::{LockError, distributed_lock};

fn text(err: LockError) -> String { err.to_string() }

#[distributed_lock(key = "order:{id}", map_err = text, on_busy = |_| Ok(()), on_error = |_| Ok(()), on_lost = finish)]
async fn claim(id: u64) -> Result<(), String> { Ok(()) }

fn main() { drop(claim(1)); }

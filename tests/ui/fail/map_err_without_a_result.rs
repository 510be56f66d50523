// catalogue D5-map-err-output
use distlock::{LockError, distributed_lock};

fn text(err: LockError) -> String { err.to_string() }

#[distributed_lock(key = "order:{id}", map_err = text, on_lost = finish)]
async fn claim(id: u64) -> Option<()> { None }

fn main() { drop(claim(1)); }

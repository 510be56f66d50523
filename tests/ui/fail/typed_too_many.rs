// catalogue typed-many
use distlock::{LockError, LockKey, distributed_lock};

#[derive(LockKey)]
#[lock(key = "seat:{row}")]
struct Seat { row: u64 }

#[distributed_lock([Seat { row: 1 }, Seat { row: 2 }, Seat { row: 3 }, Seat { row: 4 }, Seat { row: 5 }, Seat { row: 6 }, Seat { row: 7 }])]
async fn book() -> Result<(), LockError> { Ok(()) }

fn main() { drop(book()); }

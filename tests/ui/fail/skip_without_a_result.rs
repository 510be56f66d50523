// on_busy = skip on a type that can say nothing at all
use distlock::distributed_lock;

#[distributed_lock(key = "order:{id}", on_busy = skip)]
async fn one(id: u64) -> u32 { 1 }

#[distributed_lock(key = "order:{id}", on_busy = skip, on_error = skip)]
async fn two(id: u64) -> u32 { 1 }

#[distributed_lock(key = "order:{id}", on_error = skip)]
async fn three(id: u64) -> u32 { 1 }

fn main() { drop((one(1), two(1), three(1))); }

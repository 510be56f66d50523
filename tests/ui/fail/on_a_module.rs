// catalogue 31
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}")]
mod inner { pub fn f() {} }

fn main() { inner::f(); let _: Option<LockError> = None; }

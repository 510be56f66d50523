// catalogue 31
use distlock::distributed_lock;

#[distributed_lock(key = "order:{id}")]
use std::fmt;

fn main() {}

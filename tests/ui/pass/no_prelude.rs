//! A crate without a prelude.
#![no_implicit_prelude]
#![deny(warnings)]
#![allow(dead_code)]

use ::distlock::{LockError, distributed_lock};

#[distributed_lock(key = "a:{id}:{id:04}:{id:hash}", ttl = "5s", wait = forever, lease = lease, on_busy = |_| ::std::result::Result::Ok(1))]
async fn claim(id: u32) -> ::std::result::Result<u32, LockError> {
    let _ = lease;
    ::std::result::Result::Ok(id)
}

fn main() {}

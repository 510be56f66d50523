//! A crate without a prelude.
#![no_implicit_prelude]
#![deny(warnings)]
#![allow(dead_code)]

use ::distlock::{KeySegment, LockError, LockKey, distributed_lock, lock_set};

#[distributed_lock(key = "a:{id}:{id:04}:{id:hash}", ttl = "5s", wait = forever, lease = lease, on_busy = |_| ::std::result::Result::Ok(1))]
async fn claim(id: u32) -> ::std::result::Result<u32, LockError> {
    let _ = lease;
    ::std::result::Result::Ok(id)
}

#[distributed_lock(keys(for id in ids => "a:{id}:{id:04}"), after_ok = keep("1h"), after_err = release, map_err = mapped)]
async fn each(ids: &[u32]) -> ::std::result::Result<u32, ::std::string::String> {
    ::std::result::Result::Ok(1)
}

fn mapped(_: LockError) -> ::std::string::String {
    ::std::string::String::new()
}

#[distributed_lock(keys = ["a:{id}", "b"], lease = lease)]
async fn both(id: u32) -> ::std::result::Result<u32, LockError> {
    let _ = lease;
    ::std::result::Result::Ok(id)
}

#[distributed_lock(key = text, label = "text", lease = lease)]
async fn computed(text: &str) -> ::std::result::Result<(), LockError> {
    let _ = (lease, text);
    ::std::result::Result::Ok(())
}

lock_set! { pub Locks { namespace = "strict", ttl = "5s" } }

#[derive(KeySegment, ::std::clone::Clone, ::std::marker::Copy)]
enum Region {
    Eu,
}

#[derive(KeySegment)]
struct Id<T>(T);

#[derive(LockKey)]
#[lock(key = "b:{region}:{id}:{name}", set = Locks, witness = Held)]
struct Lock<'a, T> {
    region: Region,
    id: Id<T>,
    name: &'a str,
}

#[distributed_lock([Lock { region: Region::Eu, id: Id(id), name }, Whole], lease = lease)]
async fn typed(id: u32, name: &str) -> ::std::result::Result<u64, LockError> {
    ::std::result::Result::Ok(lease.part::<Held>().fencing_token())
}

#[derive(LockKey)]
#[lock(key = "whole")]
struct Whole;

fn main() {}

//! Generics, lifetimes, `impl Trait` in both places.
#![deny(warnings)]
#![allow(dead_code)]

use std::fmt::Display;
use std::sync::Arc;

use distlock::{KeySegment, LockError, distributed_lock};

trait Store {
    type Error: From<LockError>;
}

struct Memory;
struct Other;

impl Store for Memory {
    type Error = LockError;
}

impl Store for Other {
    type Error = anyhow::Error;
}

#[distributed_lock(key = "user:{user_id}")]
async fn read<D>(db: Arc<D>, user_id: String) -> Result<usize, D::Error>
where
    D: Store + Send + Sync,
{
    drop(db);
    Ok(user_id.len())
}

#[distributed_lock(key = "help:{n}")]
async fn help<'a>(cmds: &'a [Arc<dyn Display + Send + Sync>], n: usize) -> Result<&'a (dyn Display + Send + Sync), LockError> {
    Ok(&*cmds[n])
}

#[distributed_lock(key = "first:{text}")]
async fn elided(text: &str) -> Result<&str, LockError> {
    Ok(&text[..1])
}

#[distributed_lock(key = "n:{x[0]}:{N}")]
async fn constant<const N: usize>(x: [u8; N]) -> Result<usize, LockError>
where
    [u8; N]: Sized,
{
    Ok(x.len())
}

#[distributed_lock(key = "k:{id}")]
async fn segment<K: KeySegment + Send>(id: K, show: impl Display + Send) -> Result<String, LockError> {
    drop(id);
    Ok(show.to_string())
}

#[distributed_lock(key = "l:{id}")]
async fn list(id: u32) -> Result<impl Iterator<Item = u32>, LockError> {
    Ok((0..id).map(move |n| n * id))
}

#[distributed_lock(key = "l:{id}")]
async fn shown(id: &u32) -> Result<impl Display + use<'_>, LockError> {
    Ok(id)
}

#[distributed_lock(key = "call:{id}")]
async fn calls(id: u32, f: impl AsyncFn(u32) -> u32) -> Result<u32, LockError> {
    Ok(f(id).await)
}

struct Wrapper<'a, T>(&'a T);

impl<'a, T: KeySegment> Wrapper<'a, T> {
    #[distributed_lock(key = "w:{self.0}")]
    async fn get(&self, other: &T) -> Result<&'a T, LockError> {
        let _ = other;
        Ok(self.0)
    }
}

fn main() {
    fn assert_send<T: Send>(_: T) {}
    assert_send(read(Arc::new(Memory), String::new()));
    assert_send(read(Arc::new(Other), String::new()));
    assert_send(segment(1_u8, "x"));
}

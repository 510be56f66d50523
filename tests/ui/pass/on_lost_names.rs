//! Words in the closure of `on_lost` that are written like an argument and mean something else.

use distlock::{LockError, distributed_lock};

mod id {
    pub const NONE: u64 = 0;
}

struct Claim {
    id: u64,
}

impl Claim {
    fn id(&self) -> u64 {
        self.id
    }
}

#[distributed_lock(key = "order:{id}", on_lost = |id| Ok(id.key().len()))]
async fn parameter(id: u64) -> Result<usize, LockError> {
    usize::try_from(id).or(Ok(0))
}

#[distributed_lock(key = "order:{id}", on_lost = |_| Ok(Claim { id: id::NONE }.id() + Claim { id: 1 }.id))]
async fn member(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = "order:{id}", on_lost = |lost| { let id = lost.key().len(); Ok(format!("{id}")) })]
async fn local(id: u64) -> Result<String, LockError> {
    Ok(id.to_string())
}

#[distributed_lock(key = "order:{id}", on_lost = |lost| Ok(match lost.key().len() { 0 => 0, id => id }))]
async fn arm(id: u64) -> Result<usize, LockError> {
    usize::try_from(id).or(Ok(0))
}

#[distributed_lock(key = "order:{id}", on_lost = |lost| Ok(lost.key().chars().filter(|id| id.is_alphabetic()).count()))]
async fn closure(id: u64) -> Result<usize, LockError> {
    usize::try_from(id).or(Ok(0))
}

#[distributed_lock(key = "order:{id}", on_lost = |_| Ok(format!("{{id}} {id}", id = 1)))]
async fn named(id: u64) -> Result<String, LockError> {
    Ok(id.to_string())
}

#[distributed_lock(key = "order:{id}", on_lost = |lost| Ok(matches!(Some(lost.key()), Some(id) if id.is_empty())))]
async fn pattern(id: u64) -> Result<bool, LockError> {
    Ok(id == 0)
}

fn main() {
    drop((parameter(1), member(1), local(1), arm(1), closure(1), named(1), pattern(1)));
}

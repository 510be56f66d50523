//! The future is `Send` exactly when the body's is, and lives as long as its arguments.
#![deny(warnings)]
#![allow(dead_code)]

use std::cell::Cell;
use std::rc::Rc;

use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "a:{id}", lease = lease)]
async fn sendable(id: u32, cell: Cell<u32>) -> Result<u32, LockError> {
    tokio::task::yield_now().await;
    lease.key();
    Ok(id + cell.get())
}

#[distributed_lock(key = "a:{id}")]
async fn local(id: Rc<str>) -> Result<usize, LockError> {
    let rc = Rc::new(1);
    tokio::task::yield_now().await;
    Ok(id.len() + *rc)
}

#[distributed_lock(key = "a:{id.to_lowercase()}:{id.as_str()}", manager = *locks)]
async fn temporaries(id: String, locks: &distlock::LockManager) -> Result<usize, LockError> {
    tokio::task::yield_now().await;
    Ok(id.len())
}

fn assert_send<T: Send>(_: T) {}

fn main() {
    assert_send(sendable(1, Cell::new(1)));
    let locks = distlock::LockManager::in_memory();
    assert_send(temporaries(String::new(), &locks));
    drop(local(Rc::from("x")));
    let text = String::from("x");
    drop(borrows(&text));
    fn spawn<T: Send + 'static>(_: T) {}
    spawn(sendable(1, Cell::new(1)));
}

#[distributed_lock(key = "a:{id}")]
async fn borrows(id: &str) -> Result<usize, LockError> {
    Ok(id.len())
}

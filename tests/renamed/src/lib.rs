//! The dependency has another name here, and a module has its own.

use dl::{KeySegment, LockError, LockKey, distributed_lock};

/// Not the crate.
pub mod distlock {}

/// Gives its argument.
///
/// # Errors
///
/// Those of the lock.
#[distributed_lock(key = "a:{id}:{id:04}", ttl = "5s", wait = forever, lease = lease, on_busy = |_| Ok(0), crate = dl)]
pub async fn claim(id: u32) -> Result<u32, LockError> {
    lease.ensure_held()?;
    Ok(id)
}

dl::lock_set! {
    /// The locks of this crate.
    pub Locks { namespace = "renamed", ttl = "15s", crate = dl }
}

/// A lock of this crate.
#[derive(LockKey)]
#[lock(key = "b:{id}:{name}", set = Locks, witness = Held, crate = dl)]
#[derive(Debug)]
pub struct Borrowing<'a> {
    /// A number.
    pub id: Number,
    /// A name.
    pub name: &'a str,
}

/// A number.
#[derive(KeySegment, Clone, Copy, Debug)]
#[segment(crate = dl)]
pub struct Number(pub u32);

/// Gives its argument.
///
/// # Errors
///
/// Those of the lock.
#[distributed_lock(Borrowing { id: Number(id), name: "x" }, lease = lease, crate = dl)]
pub async fn typed(id: u32) -> Result<u32, LockError> {
    let lease: &dl::Lease<Held> = lease;
    lease.ensure_held()?;
    Ok(id)
}

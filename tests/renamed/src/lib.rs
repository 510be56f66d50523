//! The dependency has another name here, and a module has its own.

use dl::{LockError, distributed_lock};

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

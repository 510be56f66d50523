//! Link-time optimisation throws away what nothing refers to, and nothing refers to a declaration. `scripts/test` builds
//! this program with the profile `lto` and runs it: it fails if one of its own declarations, or one of a crate that it
//! uses, is not in the list.

use distlock::{LockError, LockKey, distributed_lock};

#[derive(LockKey)]
#[lock(key = "order:{id}")]
struct OrderLock {
    id: u64,
}

#[distributed_lock(OrderLock { id })]
async fn ship(id: u64) -> Result<(), LockError> {
    Ok(())
}

/// Never called.
mod unused {
    #[distlock::distributed_lock(key = "unused:{id}")]
    #[allow(dead_code, reason = "that is what it is for")]
    async fn unused(id: u64) -> Result<(), distlock::LockError> {
        Ok(())
    }
}

fn main() {
    // A future that is not polled does nothing, but it links the crate.
    drop((ship(1), distlock_renamed::claim(1)));
    let all = distlock::declarations();
    for name in ["OrderLock", "ship", "unused", "claim"] {
        let found = all.iter().filter(|declaration| declaration.name() == name).count();
        assert_eq!(found, 1, "`{name}` is listed {found} times: {all:?}");
    }
    distlock::assert_declarations();
    println!("{} declarations survive", all.len());
}

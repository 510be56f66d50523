//! Which leases the current task holds while one of its bodies is being polled.
//!
//! The list is filled for the time of a poll only, so it follows the task from thread to thread, includes every future
//! polled inside the body (`join!`, `select!`), and does not leak into spawned tasks.

use std::cell::RefCell;
use std::sync::Arc;

use crate::grant::Grant;
use crate::key::Names;
use crate::manager::Inner;

thread_local! {
    static HELD: RefCell<Vec<Arc<Grant>>> = const { RefCell::new(Vec::new()) };
}

/// Adds `grant` to the list until the guard is dropped.
pub(crate) fn enter(grant: &Arc<Grant>) -> impl Drop {
    struct Entered;
    impl Drop for Entered {
        fn drop(&mut self) {
            // Taken out first: dropping a grant runs code that must not find the list borrowed.
            let last = HELD.try_with(|held| held.borrow_mut().pop());
            drop(last);
        }
    }
    // A thread at its very end has no list any more; nothing can be locked from there.
    let _ = HELD.try_with(|held| held.borrow_mut().push(grant.clone()));
    Entered
}

/// The innermost lease that the current task already holds on one of these keys through the same manager.
pub(crate) fn find(inner: &Arc<Inner>, names: &Names) -> Option<Arc<Grant>> {
    HELD.try_with(|held| {
        held.borrow()
            .iter()
            .rev()
            .find(|grant| Arc::ptr_eq(&grant.inner, inner) && grant.names.shared(names).is_some())
            .cloned()
    })
    .ok()
    .flatten()
}

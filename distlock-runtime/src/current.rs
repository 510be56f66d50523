//! Which manager an annotated function uses: the one its attribute names, else the innermost [`scope`]'s, else the
//! process's, else none.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use crate::error::{Config, LockError, NotConfigured};
use crate::manager::LockManager;

/// Anything that leads to a manager: a manager, a reference, an `Arc` or a `Box`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a lock manager",
    label = "expected a `LockManager`, an `Arc` of one, or a reference to one",
    note = "write `manager = self.locks` with a field of type `LockManager`, or leave `manager` out to use the one set with `distlock::init`"
)]
pub trait AsLockManager {
    /// The manager itself.
    fn as_lock_manager(&self) -> &LockManager;
}

impl AsLockManager for LockManager {
    fn as_lock_manager(&self) -> &LockManager {
        self
    }
}

impl<T: AsLockManager + ?Sized> AsLockManager for &T {
    fn as_lock_manager(&self) -> &LockManager {
        (**self).as_lock_manager()
    }
}

impl<T: AsLockManager + ?Sized> AsLockManager for &mut T {
    fn as_lock_manager(&self) -> &LockManager {
        (**self).as_lock_manager()
    }
}

impl<T: AsLockManager + ?Sized> AsLockManager for Box<T> {
    fn as_lock_manager(&self) -> &LockManager {
        (**self).as_lock_manager()
    }
}

impl<T: AsLockManager + ?Sized> AsLockManager for Arc<T> {
    fn as_lock_manager(&self) -> &LockManager {
        (**self).as_lock_manager()
    }
}

/// The manager of the process.
static PROCESS: OnceLock<LockManager> = OnceLock::new();

tokio::task_local! {
    /// The manager of the current scope.
    static SCOPE: LockManager;
}

/// Makes `manager` the one that annotated functions of this process use unless they name another.
///
/// # Errors
///
/// `Config` if one is set already; the first one stays. Tests use [`scope`] instead.
pub fn init(manager: LockManager) -> Result<(), LockError> {
    PROCESS.set(manager).map_err(|_| Config::new("a lock manager is set for this process already; call `distlock::init` once, and use `distlock::scope` in tests").into())
}

/// Runs `future` with `manager` as the one that annotated functions use. The inner scope wins. Covers the future's own
/// task: a spawned task does not inherit it and wants [`current`] passed into a `scope` of its own.
pub fn scope<F: Future>(manager: impl AsLockManager, future: F) -> Scope<F> {
    Scope { inner: SCOPE.scope(manager.as_lock_manager().clone(), future) }
}

/// The manager that an annotated function would use here: the scope's, else the process's.
///
/// # Errors
///
/// `NotConfigured` if there is neither.
pub fn current() -> Result<LockManager, LockError> {
    SCOPE.try_with(LockManager::clone).ok().or_else(|| PROCESS.get().cloned()).ok_or_else(|| NotConfigured {}.into())
}

pin_project_lite::pin_project! {
    /// Future of [`scope`].
    #[must_use = "futures do nothing unless polled"]
    pub struct Scope<F> {
        #[pin]
        inner: tokio::task::futures::TaskLocalFuture<LockManager, F>,
    }
}

impl<F> fmt::Debug for Scope<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").finish_non_exhaustive()
    }
}

impl<F: Future> Future for Scope<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.project().inner.poll(cx)
    }
}

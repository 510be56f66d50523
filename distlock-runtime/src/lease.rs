//! What a holder has in hand: the lease, and handles that ask about it from elsewhere.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::needs_runtime;
use crate::error::{LockError, Lost};
use crate::grant::Grant;
use crate::release::{Release, release, release_in_background};
use crate::settings::check_ttl;
use crate::store::Lane;

/// Proof that a lock is held, until it is lost, released or dropped.
///
/// The watchdog renews it. Dropping it releases the key in the background, wherever that happens. `L` says which
/// declaration it is a lease on; `()` for a plain key.
#[must_use = "a lease that is dropped is released; write `let _lease = ...` (not `let _ = ...`), or use `run`"]
pub struct Lease<L = ()> {
    grant: Arc<Grant>,
    /// A view, as the body of a locked call has it, releases nothing.
    owned: bool,
    declaration: PhantomData<fn() -> L>,
}

impl<L> Lease<L> {
    pub(crate) fn owned(grant: Arc<Grant>) -> Self {
        Self { grant, owned: true, declaration: PhantomData }
    }

    pub(crate) fn view(grant: Arc<Grant>) -> Self {
        Self { grant, owned: false, declaration: PhantomData }
    }

    /// The key, as the caller gave it.
    pub fn key(&self) -> &str {
        self.grant.key_of(0)
    }

    /// Number of this grant: larger than that of every earlier grant of the same key. A resource that refuses smaller
    /// numbers is safe from a holder that does not know yet that it lost its lease.
    pub fn fencing_token(&self) -> u64 {
        self.grant.fencing_token_of(0)
    }

    /// How long the lease is valid without a further renewal; zero once it has ended.
    pub fn remaining(&self) -> Duration {
        self.grant.remaining()
    }

    /// Whether the lease is valid now.
    pub fn is_held(&self) -> bool {
        self.grant.is_held()
    }

    /// Fails if the lease is not valid any more. To be asked right before a step that cannot be undone.
    ///
    /// # Errors
    ///
    /// `Lost`.
    pub fn ensure_held(&self) -> Result<(), LockError> {
        self.grant.check().map_err(LockError::from)
    }

    /// Completes when the lease is lost, at once if it is lost already; never after a release.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn lost(&self) -> Lost {
        self.grant.lost().await
    }

    /// Makes the lease valid for at least `ttl` from now. Never shortens it, and does not move the end set by `max_hold`.
    ///
    /// # Errors
    ///
    /// `Config` for a ttl that is too short or too long; nothing is sent. `Lost` if the key is gone or somebody else's.
    /// `Unavailable` if the server gave no answer; the lease is as valid as before.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may or may not extend the lease on the server; it stays valid as long as before.
    pub async fn extend(&self, ttl: Duration) -> Result<(), LockError> {
        let Grant { inner, .. } = &*self.grant;
        check_ttl("ttl", ttl, inner.defaults.max_ttl)?;
        needs_runtime()?;
        self.ensure_held()?;
        let sent_at = inner.clock.now();
        self.grant.may_live_for(ttl);
        let renewals: Vec<_> = self.grant.renewals(ttl).collect();
        let answers = inner.store.renew(&renewals, Lane::Awaited, inner.response_timeout).await?;
        self.grant.renewed(&answers, sent_at, ttl);
        self.ensure_held()
    }

    /// A handle that asks the same questions from other tasks and threads.
    pub fn handle(&self) -> LeaseHandle<L> {
        LeaseHandle { grant: self.grant.clone(), declaration: PhantomData }
    }

    /// Gives the key back and waits for the server's answer.
    ///
    /// # Errors
    ///
    /// `Unavailable` and its like if there was no answer in time; the release then goes on in the background.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the release goes on in the background if the future is dropped.
    pub async fn release(self) -> Result<Release, LockError> {
        if !self.owned {
            return Ok(if self.is_held() { Release::Released } else { Release::AlreadyLost });
        }
        release(&self.grant, None).await
    }
}

impl<L> Drop for Lease<L> {
    fn drop(&mut self) {
        if self.owned {
            release_in_background(&self.grant);
        }
    }
}

impl<L> fmt::Debug for Lease<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug(&self.grant, f.debug_struct("Lease"))
    }
}

/// Stands for the declaration of a lease on several plain keys, as `keys` of the attribute makes it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Several;

/// Asks about a lease from elsewhere. Releases nothing, prolongs nothing and proves nothing.
pub struct LeaseHandle<L = ()> {
    grant: Arc<Grant>,
    declaration: PhantomData<fn() -> L>,
}

impl<L> LeaseHandle<L> {
    /// The key, as the caller gave it.
    pub fn key(&self) -> &str {
        self.grant.key_of(0)
    }

    /// See [`Lease::fencing_token`].
    pub fn fencing_token(&self) -> u64 {
        self.grant.fencing_token_of(0)
    }

    /// See [`Lease::remaining`].
    pub fn remaining(&self) -> Duration {
        self.grant.remaining()
    }

    /// Whether the lease is valid now; not any more once it was released.
    pub fn is_held(&self) -> bool {
        self.grant.is_held()
    }

    /// Fails if the lease is not valid any more.
    ///
    /// # Errors
    ///
    /// `Lost`, also after a release.
    pub fn ensure_held(&self) -> Result<(), LockError> {
        self.grant.check().map_err(LockError::from)
    }

    /// See [`Lease::lost`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn lost(&self) -> Lost {
        self.grant.lost().await
    }
}

impl<L> Clone for LeaseHandle<L> {
    fn clone(&self) -> Self {
        Self { grant: self.grant.clone(), declaration: PhantomData }
    }
}

impl<L> fmt::Debug for LeaseHandle<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug(&self.grant, f.debug_struct("LeaseHandle"))
    }
}

fn debug(grant: &Grant, mut out: fmt::DebugStruct<'_, '_>) -> fmt::Result {
    out.field("key", grant.key_of(0))
        .field("fencing_token", &grant.fencing_token_of(0))
        .field("remaining", &grant.remaining())
        .finish_non_exhaustive()
}

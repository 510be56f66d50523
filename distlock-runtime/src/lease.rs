//! What a holder has in hand: the lease, and handles that ask about it from elsewhere.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::sync::OnceLock;
use std::time::Duration;

use crate::clock::needs_runtime;
use crate::declarations::{OneKey, Parts, Views, place_of};
use crate::error::{LockError, Lost, Unavailable};
use crate::grant::{Grant, View};
use crate::release::{Release, release, release_in_background};
use crate::settings::check_ttl;
use crate::store::Lane;

/// Proof that a lock is held, until it is lost, released or dropped.
///
/// The watchdog renews it. Dropping it releases the key in the background, wherever that happens.
///
/// `L` says which declaration it is a lease on, so that a function can ask for a lock by its type: who calls
/// `async fn refund(_held: &Lease<CouponLock>)` holds that lock. It is `()` for a plain key, [`Several`](crate::Several)
/// for a list of them, and a tuple for declarations that are locked together.
#[must_use = "a lease that is dropped is released; write `let _lease = ...` (not `let _ = ...`), or use `run`"]
pub struct Lease<L = ()> {
    seen: View,
    /// The one part that this lease is about; all of them if there is none.
    place: Option<usize>,
    /// A view, as the body of a locked call has it, releases nothing.
    owned: bool,
    /// Leases on the parts, made when the first of them is asked for.
    parts: OnceLock<Views>,
    declaration: PhantomData<fn() -> L>,
}

impl<L> Lease<L> {
    fn new(seen: View, place: Option<usize>, owned: bool) -> Self {
        Self { seen, place, owned, parts: OnceLock::new(), declaration: PhantomData }
    }

    pub(crate) fn owned(seen: View) -> Self {
        Self::new(seen, None, true)
    }

    pub(crate) fn view(seen: View) -> Self {
        Self::new(seen, None, false)
    }

    /// A view of one key of several.
    pub(crate) fn view_of<P>(&self, place: usize) -> Lease<P> {
        Lease::new(self.seen.clone(), Some(place), false)
    }

    /// The key, as it was declared; of several the first.
    pub fn key(&self) -> &str {
        key(&self.seen, self.place)
    }

    /// All keys, in the order of the declaration.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.fencing_tokens().map(|(key, _)| key)
    }

    /// Number of this grant: larger than that of every earlier grant of the same key. A resource that refuses smaller
    /// numbers is safe from a holder that does not know yet that it lost its lease.
    ///
    /// Each key has its own, so a lease on several has none: ask the [`part`](Self::part).
    pub fn fencing_token(&self) -> u64
    where
        L: OneKey,
    {
        fencing_token(&self.seen, self.place)
    }

    /// Every key with its fencing token, in the order of the declaration.
    pub fn fencing_tokens(&self) -> impl Iterator<Item = (&str, u64)> {
        fencing_tokens(&self.seen, self.place)
    }

    /// The lease on one of the declarations that are locked together.
    ///
    /// A declaration that is not among them, or is there twice, does not build; `cargo check` does not see that yet.
    ///
    /// ```text
    /// #[distributed_lock([Account { id: from }, Shop { id: shop }], lease = lease)]
    /// async fn refund(from: u64, shop: u32) -> Result<(), LockError> {
    ///     debit(lease.part::<Account>()).await;
    ///     Ok(())
    /// }
    /// ```
    pub fn part<P: OneKey>(&self) -> &Lease<P>
    where
        L: Parts,
    {
        let place = const { place_of::<L, P>() };
        let views = self.parts.get_or_init(|| L::leases(self));
        let is_meant = |view: &Box<dyn Any + Send + Sync>| view.downcast_ref::<Lease<P>>().is_some();
        match views.get(place).filter(|view| is_meant(view)).or_else(|| views.iter().find(|view| is_meant(view))) {
            Some(view) => view.downcast_ref().unwrap_or_else(|| no_such_part()),
            None => no_such_part(),
        }
    }

    /// How long the lease is valid without a further renewal; zero once it has ended.
    pub fn remaining(&self) -> Duration {
        self.seen.grant.remaining()
    }

    /// Whether the lease is valid now.
    pub fn is_held(&self) -> bool {
        self.seen.grant.is_held()
    }

    /// Fails if the lease is not valid any more. To be asked right before a step that cannot be undone.
    ///
    /// # Errors
    ///
    /// `Lost`.
    pub fn ensure_held(&self) -> Result<(), LockError> {
        self.seen.grant.check().map_err(LockError::from)
    }

    /// Completes when the lease is lost, at once if it is lost already; never after a release.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn lost(&self) -> Lost {
        self.seen.grant.lost().await
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
        let Grant { inner, .. } = &*self.seen.grant;
        check_ttl("ttl", ttl, inner.defaults.max_ttl)?;
        needs_runtime()?;
        self.ensure_held()?;
        let sent_at = inner.clock.now();
        self.seen.grant.may_live_for(ttl);
        let renewals: Vec<_> = self.seen.grant.renewals(ttl).collect();
        let answers = match inner.store.renew(&renewals, Lane::Awaited, inner.try_limit).await {
            // A connection that broke while nobody used it is found out by the first command; the next one gets another.
            Err(error) if error.kind.is_outage() => {
                let left = inner.try_limit.saturating_sub(inner.clock.now().since(sent_at));
                if left.is_zero() {
                    return Err(error.into());
                }
                inner.store.renew(&renewals, Lane::Awaited, left).await?
            }
            answers => answers?,
        };
        let decided = self.seen.grant.renewed(&answers, sent_at, ttl);
        self.ensure_held()?;
        if decided {
            Ok(())
        } else {
            Err(Unavailable::new("too few of the lock servers answered; the lease is as valid as before").into())
        }
    }

    /// A handle that asks the same questions from other tasks and threads.
    pub fn handle(&self) -> LeaseHandle<L> {
        LeaseHandle { seen: self.seen.clone(), place: self.place, declaration: PhantomData }
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
        release(&self.seen.grant, None).await
    }
}

impl<L> Drop for Lease<L> {
    fn drop(&mut self) {
        if self.owned {
            release_in_background(&self.seen.grant);
        }
    }
}

impl<L> fmt::Debug for Lease<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug(&self.seen, self.place, f.debug_struct("Lease"))
    }
}

/// Asks about a lease from elsewhere. Releases nothing, prolongs nothing and proves nothing.
pub struct LeaseHandle<L = ()> {
    seen: View,
    place: Option<usize>,
    declaration: PhantomData<fn() -> L>,
}

impl<L> LeaseHandle<L> {
    /// See [`Lease::key`].
    pub fn key(&self) -> &str {
        key(&self.seen, self.place)
    }

    /// See [`Lease::keys`].
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.fencing_tokens().map(|(key, _)| key)
    }

    /// See [`Lease::fencing_token`].
    pub fn fencing_token(&self) -> u64
    where
        L: OneKey,
    {
        fencing_token(&self.seen, self.place)
    }

    /// See [`Lease::fencing_tokens`].
    pub fn fencing_tokens(&self) -> impl Iterator<Item = (&str, u64)> {
        fencing_tokens(&self.seen, self.place)
    }

    /// See [`Lease::remaining`].
    pub fn remaining(&self) -> Duration {
        self.seen.grant.remaining()
    }

    /// Whether the lease is valid now; not any more once it was released.
    pub fn is_held(&self) -> bool {
        self.seen.grant.is_held()
    }

    /// Fails if the lease is not valid any more.
    ///
    /// # Errors
    ///
    /// `Lost`, also after a release.
    pub fn ensure_held(&self) -> Result<(), LockError> {
        self.seen.grant.check().map_err(LockError::from)
    }

    /// See [`Lease::lost`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn lost(&self) -> Lost {
        self.seen.grant.lost().await
    }
}

impl<L> Clone for LeaseHandle<L> {
    fn clone(&self) -> Self {
        Self { seen: self.seen.clone(), place: self.place, declaration: PhantomData }
    }
}

impl<L> fmt::Debug for LeaseHandle<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug(&self.seen, self.place, f.debug_struct("LeaseHandle"))
    }
}

fn key(seen: &View, place: Option<usize>) -> &str {
    seen.key_of(place.unwrap_or(0))
}

fn fencing_token(seen: &View, place: Option<usize>) -> u64 {
    seen.fencing_token_of(place.unwrap_or(0))
}

fn fencing_tokens(seen: &View, place: Option<usize>) -> impl Iterator<Item = (&str, u64)> {
    let places = match place {
        Some(place) => place..place + 1,
        None => 0..seen.parts(),
    };
    places.map(|place| (seen.key_of(place), seen.fencing_token_of(place)))
}

/// The place of a part was found while the program was built.
#[cold]
fn no_such_part() -> ! {
    unreachable!("two declarations of different types are known by one name")
}

fn debug(seen: &View, place: Option<usize>, mut out: fmt::DebugStruct<'_, '_>) -> fmt::Result {
    for (key, fencing_token) in fencing_tokens(seen, place) {
        out.field("key", &key).field("fencing_token", &fencing_token);
    }
    out.field("remaining", &seen.grant.remaining()).finish_non_exhaustive()
}

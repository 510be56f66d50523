//! Locks by hand: the same engine as the attribute, as a builder.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::Location;
use std::time::Duration;

use crate::acquire::{Holding, Intent};
use crate::declarations::LockKey;
use crate::error::LockError;
use crate::key::Keys;
use crate::lease::Lease;
use crate::locked::{ByHand, Call, Locked};
use crate::manager::LockManager;
use crate::settings::{Renew, Settings, Wait};

/// A lock that is not taken yet. Made by [`LockManager::lock`].
///
/// Nothing is sent until one of the methods that take the lock is awaited.
#[must_use = "a lock does nothing until it is acquired or run"]
pub struct Lock<L = ()> {
    manager: LockManager,
    keys: Result<Keys, LockError>,
    /// What the builder was told.
    settings: Settings,
    /// What the declaration says, which comes second.
    declared: Settings,
    place: &'static Location<'static>,
    declaration: PhantomData<fn() -> L>,
}

impl<L> Lock<L> {
    pub(crate) fn new<K: LockKey<Witness = L>>(
        manager: LockManager,
        key: K,
        place: &'static Location<'static>,
    ) -> Self {
        Self {
            manager,
            keys: key.keys(),
            settings: Settings::INHERIT,
            declared: K::SETTINGS,
            place,
            declaration: PhantomData,
        }
    }

    /// How long the key outlives a crashed holder: 10 ms to the manager's `max_ttl`. Default: the manager's.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.settings.ttl = Some(ttl);
        self
    }

    /// How long to try to get the lock, everything included. Zero is one try; [`Duration::MAX`] is forever. Default: the
    /// manager's.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.settings.wait = Some(wait.into());
        self
    }

    /// Tries until it has the lock.
    pub fn wait_forever(mut self) -> Self {
        self.settings.wait = Some(Wait::Forever);
        self
    }

    /// How the lease is prolonged: an interval of at most half the ttl, or a [`Renew`]. Default: every third of the ttl.
    pub fn renew(mut self, renew: impl Into<Renew>) -> Self {
        self.settings.renew = Some(renew.into());
        self
    }

    /// The longest the lease may be held; it is lost then. At least the ttl. Default: none.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.settings.max_hold = Some(max_hold);
        self
    }

    /// The shortest time the key stays taken, also when it is released before. Default: none.
    pub fn min_hold(mut self, min_hold: Duration) -> Self {
        self.settings.min_hold = Some(min_hold);
        self
    }

    /// Whether a body that holds this key already may enter; the key is free after the outermost exit. Default: no.
    pub fn reentrant(mut self, reentrant: bool) -> Self {
        self.settings.reentrant = Some(reentrant);
        self
    }

    /// Takes the lock.
    ///
    /// # Errors
    ///
    /// `Busy` when the wait is over and somebody else holds the key; see [`LockError`] for the others.
    ///
    /// # Cancel safety
    ///
    /// Dropped at any point, the future leaves no key behind; what may have been sent is taken back in the background.
    pub async fn acquire(self) -> Result<Lease<L>, LockError> {
        let holding = self.intent()?.acquire().await?;
        Ok(match holding {
            Holding::Own(_) => Lease::owned(holding.view()),
            Holding::Shared(view) => Lease::view(view),
        })
    }

    /// Takes the lock, or gives `None` if somebody else holds the key. Without a [`wait`](Self::wait) it tries once, also
    /// where the manager's default is to wait.
    ///
    /// # Errors
    ///
    /// Those of [`acquire`](Self::acquire) but `Busy`.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire(mut self) -> Result<Option<Lease<L>>, LockError> {
        self.settings = self.settings.or(self.declared);
        self.settings.wait.get_or_insert(Wait::For(Duration::ZERO));
        match self.acquire().await {
            Ok(lease) => Ok(Some(lease)),
            Err(LockError::Busy(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Runs `body` under the lock. It is called once the lease is there, and ended when the lease is lost.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let locks = distlock_runtime::LockManager::in_memory();
    /// let token = locks.lock("invoice:7").run(async |lease| lease.fencing_token()).await?;
    /// # assert!(token > 0); Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`acquire`](Self::acquire), and `Lost`.
    ///
    /// # Cancel safety
    ///
    /// Dropped at any point, the future drops the body and gives the key back in the background.
    pub async fn run<F, R>(self, body: F) -> Result<R, LockError>
    where
        F: AsyncFnOnce(&Lease<L>) -> R,
    {
        let holding = self.intent()?.acquire().await?;
        let lease = Lease::view(holding.view());
        // Built before the body is called, so that a panic in there finds the lease owned.
        let body = async { body(&lease).await };
        Locked::under(holding, ByHand, body).await
    }

    /// As [`run`](Self::run), for a body that gives a `Result` whose error can carry a [`LockError`].
    ///
    /// # Errors
    ///
    /// The body's own, and those of [`run`](Self::run).
    ///
    /// # Cancel safety
    ///
    /// As [`run`](Self::run).
    pub async fn try_run<F, T, E>(self, body: F) -> Result<T, E>
    where
        F: AsyncFnOnce(&Lease<L>) -> Result<T, E>,
        E: From<LockError>,
    {
        self.run(body).await?
    }

    /// Wraps `future` so that it runs under the lock: a future with a name, `Send` when `future` is, for adapters and
    /// generic code. `future` is first polled when the lease is there.
    pub fn around<F: Future>(self, future: F) -> Locked<F> {
        let place = self.place.to_string();
        let settings = self.settings.or(self.declared);
        Locked::new(Call::new(Ok(self.manager), self.keys, settings, place), ByHand, future)
    }

    fn intent(&self) -> Result<Box<Intent>, LockError> {
        let keys = self.keys.as_ref().map_err(LockError::clone)?;
        let settings = self.settings.or(self.declared);
        Intent::new(&self.manager, keys, &settings, self.place.to_string().into()).map(Box::new)
    }
}

impl<L> fmt::Debug for Lock<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").field("keys", &self.keys).field("settings", &self.settings).finish_non_exhaustive()
    }
}

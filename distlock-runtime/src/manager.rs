//! The lock manager: one lock service, and everything that is needed to take locks on it.
//!
//! Below the public [`LockManager`] stands [`Inner`], the parts that the engine works with.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::background::Background;
use crate::builder::Builder;
use crate::clock::{Clock, needs_runtime};
use crate::declarations::LockKey;
#[cfg(feature = "tracing")]
use crate::doctor::Severity;
use crate::doctor::{self, Finding};
use crate::error::{Closed, Config, LockError, LossCause};
use crate::events;
use crate::gate::Gate;
use crate::grant::{End, Grant};
use crate::key::{DEFAULT_NAMESPACE, Keys, Namespace};
use crate::lock::Lock;
use crate::registry;
use crate::settings::Defaults;
use crate::store::LockStore;
use crate::store::facts::{Look, Wanted};
use crate::store::memory::MemoryStore;
use crate::watchdog::{Home, Watchdog};

/// The variable that [`LockManager::from_env`] reads.
const URL_VARIABLE: &str = "DISTLOCK_URL";

/// What a look at the server may add to the time that connecting takes.
#[cfg(feature = "tracing")]
const LOOK_AT_CONNECT: Duration = Duration::from_millis(100);

/// Takes, renews and gives back locks on one lock service.
///
/// Cloning is cheap, and all clones share one connection and one watchdog. The last clone and the last lease to be
/// dropped end the manager's thread.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::time::Duration;
/// # use distlock_runtime as distlock;
/// use distlock::LockManager;
///
/// let locks = LockManager::in_memory();
/// let lease = locks.lock("invoice:7").ttl(Duration::from_secs(5)).acquire().await?;
/// assert!(lease.is_held());
/// lease.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct LockManager {
    inner: Arc<Inner>,
}

/// The parts of a manager, shared by everything it has given out.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) store: Arc<dyn LockStore>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) watchdog: Arc<Watchdog>,
    pub(crate) background: Background,
    pub(crate) clock: Clock,
    pub(crate) defaults: Defaults,
    pub(crate) namespace: Namespace,
    pub(crate) response_timeout: Duration,
    /// How long a single try may take, that of the replicas included where it waits for them.
    pub(crate) try_limit: Duration,
    /// A lock counts once so many replicas have it.
    replica_acks: Option<usize>,
    /// How long a server abstains that has lost its memory.
    quarantine: Option<Duration>,
    /// `<host>/<pid>` of this process.
    pub(crate) process: Arc<str>,
    closed: AtomicBool,
    /// Told when the manager is closed.
    closing: Notify,
}

impl LockManager {
    /// Connects to the server at `url`: `redis://[user:password@]host[:port][/db]`, the same with `rediss://` and TLS,
    /// `unix:///path[?user=..&pass=..&db=..]`, or `memory:`. A URL without a scheme gets `redis://`.
    ///
    /// Or to several:
    ///
    /// * `redlock:URL,URL,URL`: independent servers, of which a majority decides; see [`Builder::redlock`].
    /// * `redis+sentinel://[user:password@]host[:port],host[:port]/name[/db]`, with the feature `sentinel`: the primary that
    ///   these Sentinels call `name`.
    /// * `redis+cluster://[user:password@]host[:port],host[:port]`, with the feature `cluster`: some nodes of a Redis Cluster,
    ///   by which the others are found. Keys that are taken together must be in one slot there.
    ///
    /// ```no_run
    /// # async fn connect() -> Result<(), distlock_runtime::LockError> {
    /// # use distlock_runtime::LockManager;
    /// let one = LockManager::connect("redis://127.0.0.1:6379").await?;
    /// let many = LockManager::connect("redlock:redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3").await?;
    /// # let _ = (one, many);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `Unavailable` when no server, or of several no majority, answers within the connect time-out of one second,
    /// `Permission` when it refuses the login, `Config` when the URL cannot be used.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind; a connection that is being made is closed.
    pub async fn connect(url: impl Into<String>) -> Result<Self, LockError> {
        Self::builder().url(url).build().await
    }

    /// As [`connect`](Self::connect), with the URL from the variable `DISTLOCK_URL`.
    ///
    /// # Errors
    ///
    /// `Config` when the variable is not set, else those of [`connect`](Self::connect).
    ///
    /// # Cancel safety
    ///
    /// As [`connect`](Self::connect).
    pub async fn from_env() -> Result<Self, LockError> {
        match std::env::var(URL_VARIABLE) {
            Ok(url) if !url.trim().is_empty() => Self::connect(url).await,
            Err(std::env::VarError::NotUnicode(_)) => Err(Config::new(format!("the variable `{URL_VARIABLE}` is not valid UTF-8; set it to a URL such as `redis://127.0.0.1:6379`")).into()),
            _ => Err(Config::new(format!("the variable `{URL_VARIABLE}` is not set; set it to the URL of the lock server, as in `redis://127.0.0.1:6379`, or to `memory:`")).into()),
        }
    }

    /// A manager without a server: real exclusion between the tasks of this process, for tests and first steps.
    ///
    /// Lock declarations that contradict each other are an event here, and an error of
    /// `LockManager::builder().url("memory:").build()`.
    #[must_use]
    pub fn in_memory() -> Self {
        let settings = Builder::default();
        let (declarations, agree) = registry::check(&settings.defaults, DEFAULT_NAMESPACE);
        events::declarations(declarations);
        // There is no server that other programs share, and nothing to return the error in.
        if let Err(error) = agree {
            events::declarations_contradict(&error);
        }
        Self::assemble_in_memory(&settings, Namespace::default())
    }

    /// A manager with settings of its own.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Begins a lock on `key`: a text, or a typed declaration. Nothing is sent until one of its methods is awaited.
    #[track_caller]
    pub fn lock<K: LockKey>(&self, key: K) -> Lock<K::Witness> {
        Lock::new(self.clone(), key, std::panic::Location::caller())
    }

    /// Tells the servers of a new deployment with [`quarantine`](Builder::quarantine) that there is nothing that they could
    /// have forgotten, so that they vote at once. To be called once, by whoever sets up the servers. Where some of them
    /// remember locks and others do not, it is refused: those sit their quarantine out. Servers that have *all* lost
    /// everything look like new ones; never call it then.
    ///
    /// # Errors
    ///
    /// Those of the first server that could not be asked or told; call it again then. `Config` where there is no quarantine,
    /// or some of the servers are not new.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it leaves some servers told and others not; call it again.
    pub async fn bootstrap(&self) -> Result<(), LockError> {
        self.inner.open()?;
        needs_runtime()?;
        Ok(self.inner.store.bootstrap().await?)
    }

    /// Looks at the lock server for what will hurt: permissions that are missing, in the manager's namespace and in those of
    /// the program's lock sets, writes that are refused, keys that may be evicted, replicas, clocks, and of several servers
    /// whether enough of them vote. Each finding says what to do; the worst comes first. Nothing found, or no server at all,
    /// is an empty list.
    ///
    /// Locking needs nothing of what this looks at: a server that refuses to be asked is a finding, too. It takes about a
    /// quarter of a second, and tries the user's permissions on keys that nobody uses.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use distlock_runtime as distlock;
    /// let locks = distlock::LockManager::in_memory();
    /// for finding in locks.doctor().await? {
    ///     // Begins with "problem", "warning" or "note".
    ///     println!("{finding}");
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `Unavailable`, `Permission` or `Config` when no server can be asked at all, `Closed` after a shutdown.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind.
    pub async fn doctor(&self) -> Result<Vec<Finding>, LockError> {
        self.inner.open()?;
        self.inner.examine(true, self.inner.response_timeout).await
    }

    /// Tells as events what a short look at the server finds. Whatever comes of it, the manager can be used.
    #[cfg(feature = "tracing")]
    pub(crate) async fn look_at_connect(&self) {
        let looking = self.inner.examine(false, LOOK_AT_CONNECT);
        let Ok(Ok(findings)) = tokio::time::timeout(LOOK_AT_CONNECT, looking).await else { return };
        findings.iter().filter(|finding| finding.severity() > Severity::Note).for_each(events::finding);
    }

    /// Ends the use of this manager: no new locks, every live lease is declared lost and its key released, and releases
    /// still under way in the background are waited for, all within `limit`.
    ///
    /// Later calls through this manager or its clones are `Closed`.
    ///
    /// # Cancel safety
    ///
    /// The manager is closed by the first poll; releases that were begun go on in the background. Outside of a tokio
    /// runtime it does not wait for them.
    pub async fn shutdown(&self, limit: Duration) -> Shutdown {
        let inner = &self.inner;
        inner.closed.store(true, Ordering::Release);
        inner.closing.notify_waiters();
        let released = Arc::new(AtomicUsize::new(0));
        let give_up_at = inner.clock.now().after(limit);
        for grant in inner.watchdog.live() {
            if grant.end(End::ByLoss(LossCause::Shutdown)) {
                inner.background.spawn(give_back(grant, released.clone()));
            }
        }
        if needs_runtime().is_ok() {
            tokio::select! {
                biased;
                () = inner.background.idle() => {}
                () = inner.clock.sleep_until(give_up_at) => {}
            }
        }
        Shutdown { released: released.load(Ordering::Acquire), left: inner.background.jobs() }
    }

    pub(crate) fn assemble_in_memory(settings: &Builder, namespace: Namespace) -> Self {
        let clock = Clock::tokio();
        let store: Arc<dyn LockStore> = Arc::new(MemoryStore::new(clock));
        let watchdog = Watchdog::new(clock, store.clone(), settings.try_limit(), Home::Task);
        Self::assemble(settings, namespace, clock, store, watchdog, Background::on_the_spot())
    }

    /// Everything on tokio's clock and the current runtime, so that paused time rules all of it.
    #[cfg(feature = "testing")]
    pub(crate) fn assemble_on_streams(settings: &Builder, namespace: Namespace, store: Arc<dyn LockStore>) -> Self {
        let clock = Clock::tokio();
        let watchdog = Watchdog::new(clock, store.clone(), settings.try_limit(), Home::Task);
        let background = Background::on(tokio::runtime::Handle::current());
        Self::assemble(settings, namespace, clock, store, watchdog, background)
    }

    pub(crate) fn assemble_on_server(
        settings: &Builder,
        namespace: Namespace,
        store: Arc<dyn LockStore>,
    ) -> Result<Self, LockError> {
        let clock = Clock::System;
        let watchdog = Watchdog::new(clock, store.clone(), settings.try_limit(), Home::Thread);
        let background = Background::thread(watchdog.clone())?;
        Ok(Self::assemble(settings, namespace, clock, store, watchdog, background))
    }

    fn assemble(
        settings: &Builder,
        namespace: Namespace,
        clock: Clock,
        store: Arc<dyn LockStore>,
        watchdog: Arc<Watchdog>,
        background: Background,
    ) -> Self {
        store.settle(background.tails());
        let inner = Inner {
            store,
            gate: Arc::default(),
            watchdog,
            background,
            clock,
            defaults: settings.defaults,
            namespace,
            response_timeout: settings.response_timeout,
            try_limit: settings.try_limit(),
            replica_acks: settings.replica_acks.map(|(replicas, _)| replicas),
            quarantine: settings.longest_forgotten(),
            process: format!("{}/{}", host(), std::process::id()).into(),
            closed: AtomicBool::new(false),
            closing: Notify::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }
}

impl fmt::Debug for LockManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockManager").field("namespace", &self.inner.namespace).finish_non_exhaustive()
    }
}

impl Inner {
    /// Completes when the manager is closed.
    pub(crate) async fn closing(&self) {
        let told = self.closing.notified();
        tokio::pin!(told);
        // Listen first, then look: a shutdown in between is not missed.
        told.as_mut().enable();
        if self.open().is_ok() {
            told.await;
        }
    }

    async fn examine(&self, thorough: bool, limit: Duration) -> Result<Vec<Finding>, LockError> {
        let Self { replica_acks, quarantine, .. } = *self;
        let cluster = self.namespace.is_in_cluster();
        let wanted = Wanted { drift: self.defaults.drift, replica_acks, quarantine, cluster };
        let unused = format!("doctor:{}", uuid::Uuid::new_v4().simple());
        let names = |namespace: Option<&'static str>| {
            let name = |key: &str| {
                let keys = Keys::one(key.to_owned());
                self.namespace.names(&match namespace {
                    Some(namespace) => keys.in_namespace(namespace),
                    None => keys,
                })
            };
            Ok::<_, LockError>((name(&unused)?, name("{doctor}:tagged")?))
        };
        let (plain, tagged) = names(None)?;
        let others = registry::namespaces().into_iter().filter(|other| *other != self.namespace.text());
        let look = Look {
            clock: self.clock,
            plain,
            tagged,
            // One that no lock can be taken in is told where it is used.
            others: others.filter_map(|other| names(Some(other)).ok()).collect(),
            epoch: self.quarantine.map(|_| self.namespace.epoch.clone()),
            thorough,
            wanted,
        };
        doctor::judge(&self.store.facts(&look, limit).await, wanted)
    }

    /// Refuses to begin anything new after a shutdown.
    pub(crate) fn open(&self) -> Result<(), LockError> {
        if self.closed.load(Ordering::Acquire) { Err(Closed {}.into()) } else { Ok(()) }
    }
}

/// Releases a lease that a shutdown has ended, once the step of its body that may be running is over.
async fn give_back(grant: Arc<Grant>, released: Arc<AtomicUsize>) {
    grant.body_at_rest().await;
    if grant.inner.release_until_answered(grant.release_request(), grant.longest_life(), None).await {
        released.fetch_add(1, Ordering::Release);
    }
}

/// What a [`LockManager::shutdown`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shutdown {
    /// Leases that were live and whose keys were given back.
    pub released: usize,
    /// Releases that had no answer when the limit was over; they go on in the background while the process lives.
    pub left: usize,
}

/// The name of this machine, fit to stand between a space and a slash.
fn host() -> String {
    #[cfg(unix)]
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    #[cfg(not(unix))]
    let name = std::env::var("COMPUTERNAME").unwrap_or_default();
    let name: String =
        name.chars().map(|c| if c.is_whitespace() || c.is_control() || c == '/' { '_' } else { c }).collect();
    if name.is_empty() { "localhost".to_owned() } else { name }
}

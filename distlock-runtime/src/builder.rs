//! Settings of a manager.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{needs_runtime, tokio_clock_is_paused};
use crate::credentials::{Credentials, Login};
use crate::error::{Config, LockError};
use crate::events;
use crate::key::{DEFAULT_NAMESPACE, Namespace};
use crate::manager::LockManager;
use crate::registry;
use crate::service::Service;
use crate::settings::{DEFAULT_MAX_TTL, DEFAULT_TTL, Defaults, MIN_TTL, Wait};
use crate::store::LockStore;
use crate::store::redis::RedisStore;
#[cfg(feature = "cluster")]
use crate::store::redis::cluster::ClusterStore;
#[cfg(feature = "tls-rustls")]
use crate::store::redis::encryption::Encryption;
#[cfg(feature = "testing")]
use crate::store::redis::target::streams::Streams;
use crate::store::redis::target::{Access, Target};
use crate::store::redis::vote::Memory;
use crate::store::redlock::Redlock;
use crate::tls::Tls;

const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
const DEFAULT_RESPONSE_TIMEOUT: Duration = Duration::from_millis(500);
const DEFAULT_DRIFT: f64 = 0.01;

/// The largest drift that leaves a lease worth having.
const MAX_DRIFT: f64 = 0.5;

/// The longest that servers in quarantine abstain, unless `max_ttl` is set by hand.
const LONGEST_QUARANTINE: Duration = Duration::from_secs(10 * 60);

/// The longest `max_ttl`: servers refuse expiries near the end of their number range.
const LONGEST_MAX_TTL: Duration = Duration::from_secs(10 * 366 * 24 * 60 * 60);

/// The longest time-out of a command or a connection: far beyond any use, and short enough to be reckoned with.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// Settings of a [`LockManager`].
#[derive(Clone)]
#[must_use]
pub struct Builder {
    url: Option<String>,
    redlock: Option<Vec<String>>,
    /// A server that has lost its memory does not vote for `max_ttl`.
    pub(crate) quarantine: bool,
    pub(crate) replica_acks: Option<(usize, Duration)>,
    /// `max_ttl` was set by hand.
    max_ttl_is_given: bool,
    namespace: String,
    pub(crate) defaults: Defaults,
    pub(crate) response_timeout: Duration,
    connect_timeout: Duration,
    lazy: bool,
    tls: Option<Tls>,
    credentials: Option<Credentials>,
    #[cfg(feature = "testing")]
    streams: Option<Streams>,
    #[cfg(feature = "testing")]
    server_streams: Vec<Streams>,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            url: None,
            redlock: None,
            quarantine: false,
            replica_acks: None,
            max_ttl_is_given: false,
            namespace: DEFAULT_NAMESPACE.to_owned(),
            defaults: Defaults {
                ttl: DEFAULT_TTL,
                wait: Wait::For(Duration::ZERO),
                max_ttl: DEFAULT_MAX_TTL,
                drift: DEFAULT_DRIFT,
                grace: Duration::ZERO,
            },
            response_timeout: DEFAULT_RESPONSE_TIMEOUT,
            connect_timeout: DEFAULT_CONNECT_TIMEOUT,
            lazy: false,
            tls: None,
            credentials: None,
            #[cfg(feature = "testing")]
            streams: None,
            #[cfg(feature = "testing")]
            server_streams: Vec::new(),
        }
    }
}

impl fmt::Debug for Builder {
    /// Without the URL, which may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("namespace", &self.namespace)
            .field("defaults", &self.defaults)
            .finish_non_exhaustive()
    }
}

impl Builder {
    /// Where the lock server is; see [`LockManager::connect`].
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.url = Some(url.into());
        self
    }

    /// Instead of a URL: several independent servers, of which a majority decides (Redlock). The same as the URL
    /// `redlock:URL,URL,URL`, in which a comma of a password is percent-encoded as `%2C`.
    ///
    /// A lease then outlives the loss of a minority of the servers. The servers must know nothing of each other: no
    /// replicas, no cluster. An even number works and is warned of: four bear no more failures than three. Who waits for a
    /// key of another process is told by each server for itself; there is no common line, and so no order between processes
    /// that is guaranteed.
    ///
    /// ```no_run
    /// # use distlock_runtime as distlock;
    /// # async fn example() -> Result<(), distlock::LockError> {
    /// let locks = distlock::LockManager::builder().redlock(["redis://a", "redis://b", "redis://c"]).build().await?;
    /// # Ok(()) }
    /// ```
    pub fn redlock<I>(mut self, urls: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        self.redlock = Some(urls.into_iter().map(Into::into).collect());
        self
    }

    /// With [`redlock`](Self::redlock): a server that may have lost its memory (started anew, whatever it kept, or flushed)
    /// does not vote for `max_ttl` (and `grace`), so that every lease that it forgot has ended by then. Advised for servers
    /// without persistence, or with snapshots. A user who may not run `INFO` sees the loss of everything only. Default
    /// `false`.
    ///
    /// `max_ttl` is 10 minutes then, unless it is set by hand. The servers of a new deployment abstain as well, unless
    /// [`LockManager::bootstrap`] is called once.
    pub fn quarantine(mut self, quarantine: bool) -> Self {
        self.quarantine = quarantine;
        self
    }

    /// Prefix of every key on the server. Default `distlock`. A namespace that goes on with `:` may name the same keys as
    /// a shorter one (`a` with key `b:c`, `a:b` with key `c`); do not use both on one server.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// Ttl of locks that name none. Default 30 s.
    pub fn default_ttl(mut self, ttl: Duration) -> Self {
        self.defaults.ttl = ttl;
        self
    }

    /// Wait of locks that name none; [`Duration::MAX`] is forever. Default zero: one try.
    pub fn default_wait(mut self, wait: Duration) -> Self {
        self.defaults.wait = wait.into();
        self
    }

    /// The longest ttl and `min_hold` that a lock may ask for. Default 24 h.
    pub fn max_ttl(mut self, max_ttl: Duration) -> Self {
        self.defaults.max_ttl = max_ttl;
        self.max_ttl_is_given = true;
        self
    }

    /// How long one command may go unanswered, up to an hour. Default 500 ms.
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.response_timeout = timeout;
        self
    }

    /// How long one connection attempt may take, up to an hour. Default 1 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Share of the ttl given up for clocks that run at different rates, from 0 to 0.5. Default 0.01; hosts whose clocks
    /// are slewed by an NTP daemon need 0.1.
    pub fn drift(mut self, drift: f64) -> Self {
        self.defaults.drift = drift;
        self
    }

    /// How much longer than the lease the key stays taken when the lease is not given back in time: after a crash, and
    /// after a loss by the deadline. Default zero.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.defaults.grace = grace;
        self
    }

    /// Counts a lock as taken, and a renewal as done, only once `replicas` replicas of the server have it, each time within
    /// `limit`. A failover to one of these replicas then keeps the lock. Default: the server alone decides.
    ///
    /// A lock that too few of them acknowledge is given back, and the call says `Unavailable`. A lease whose renewals are not
    /// acknowledged ends at its deadline. So with fewer replicas there are no locks; and it is no consensus: the server may
    /// be replaced by a replica that is behind the others. Name as many as there are if it must not lose a lock.
    ///
    /// It costs another round trip and the way to the replica for each lock and each batch of renewals (`WAIT`, which the
    /// user needs the permission for), on two connections of its own; a single try may take `limit` longer then. In a Cluster
    /// it is the replicas of the primary that has the key.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// use std::time::Duration;
    /// use distlock::LockManager;
    ///
    /// let builder = LockManager::builder().url("redis://primary:6379").replica_acks(1, Duration::from_millis(100));
    /// # let _ = builder;
    /// ```
    pub fn replica_acks(mut self, replicas: usize, limit: Duration) -> Self {
        self.replica_acks = Some((replicas, limit));
        self
    }

    /// Instead of a URL: opens a stream to the server for each connection. With in-process streams everything runs on
    /// tokio's clock, so that a test under paused time is exact. For tests.
    #[cfg(feature = "testing")]
    pub fn streams<S, F>(mut self, open: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
        F: Future<Output = std::io::Result<S>> + Send + 'static,
    {
        self.streams = Some(Streams::new(open));
        self
    }

    /// As [`streams`](Self::streams), for one more of several independent servers (Redlock). For tests.
    #[cfg(feature = "testing")]
    pub fn server_streams<S, F>(mut self, open: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
        F: Future<Output = std::io::Result<S>> + Send + 'static,
    {
        self.server_streams.push(Streams::new(open));
        self
    }

    /// Whom a `rediss://` URL trusts, and what the connection shows of itself. Needs the crate's feature `tls-rustls`.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Asks `provider` for user and password, once for each connection that is made, instead of reading them in the URL.
    /// So a password can be changed while the process runs: a standing connection stays, and the next one, made after the
    /// server has closed it or refused its login, gets the new one.
    ///
    /// The provider's time counts as time to connect. The text of its error becomes part of ours: it should hold no secret.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// use distlock::{LockManager, Login};
    ///
    /// let builder = LockManager::builder().url("redis://locks.internal").credentials(|| async {
    ///     let password = std::fs::read_to_string("/run/secrets/locks")?;
    ///     Ok(Login::new("billing", password.trim()))
    /// });
    /// # let _ = builder;
    /// ```
    pub fn credentials<F>(mut self, provider: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Login, Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
    {
        self.credentials = Some(Credentials::new(provider));
        self
    }

    /// Starts without a server; the first lock connects.
    pub fn lazy(mut self) -> Self {
        self.lazy = true;
        self
    }

    /// Builds the manager, and connects unless it is [`lazy`](Self::lazy).
    ///
    /// # Errors
    ///
    /// `Config` for settings that cannot work, its own or those of the program's lock declarations, and for lock
    /// declarations that contradict each other (see [`assert_declarations`](crate::assert_declarations)), else those of
    /// [`LockManager::connect`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind.
    pub async fn build(mut self) -> Result<LockManager, LockError> {
        if self.quarantine && !self.max_ttl_is_given {
            self.defaults.max_ttl = self.defaults.max_ttl.min(LONGEST_QUARANTINE);
        }
        self.check()?;
        let namespace = Namespace::new(&self.namespace)?;
        let (declarations, agree) = registry::check(&self.defaults, &self.namespace);
        agree?;
        events::declarations(declarations);
        #[cfg(feature = "testing")]
        if self.streams.is_some() || !self.server_streams.is_empty() {
            needs_runtime()?;
            let store = self.store_on_streams(&namespace).await?;
            return Ok(LockManager::assemble_on_streams(&self, namespace, store));
        }
        let service = self.service()?;
        if self.quarantine && !matches!(service, Service::Redlock(_)) {
            return Err(Config::new("`quarantine` is for Redlock; add `.redlock([…])` with the URLs of the servers (one is enough), or leave `quarantine` out").into());
        }
        if self.replica_acks.is_some() && !service.has_replicas() {
            return Err(Config::new("`replica_acks` is for servers that have replicas; name them with `redis://`, `redis+sentinel://` or `redis+cluster://`, or leave `replica_acks` out").into());
        }
        if matches!(service, Service::Memory) {
            return Ok(LockManager::assemble_in_memory(&self, namespace));
        }
        needs_runtime()?;
        if tokio_clock_is_paused() {
            return Err(Config::new("the tokio clock is paused, under which a real server cannot be used; use `LockManager::in_memory()` in tests with `start_paused`").into());
        }
        let store = self.store_on_servers(&service, &namespace).await?;
        #[cfg(feature = "cluster")]
        let namespace = if matches!(service, Service::Cluster(_)) { namespace.in_cluster() } else { namespace };
        let locks = LockManager::assemble_on_server(&self, namespace, store)?;
        #[cfg(feature = "tracing")]
        if !self.lazy {
            locks.look_at_connect().await;
        }
        Ok(locks)
    }

    /// How long a server abstains that may have lost its memory: as long as the longest key lives that it may have forgotten.
    pub(crate) fn longest_forgotten(&self) -> Option<Duration> {
        let Defaults { max_ttl, grace, .. } = self.defaults;
        self.quarantine.then_some(max_ttl.saturating_add(grace))
    }

    /// How long a single try may take: that of the server, and that of its replicas where it waits for them.
    pub(crate) fn try_limit(&self) -> Duration {
        self.response_timeout + self.replica_acks.map_or(Duration::ZERO, |(_, limit)| limit)
    }

    /// What was named, once and by one of the ways to do so.
    fn service(&self) -> Result<Service, LockError> {
        match (self.url.as_deref(), &self.redlock) {
            (Some(url), None) => Service::of(url),
            (None, Some(urls)) => Service::redlock(urls.iter().map(String::as_str)),
            (Some(_), Some(_)) => {
                Err(Config::new("both `.url(…)` and `.redlock([…])` name lock servers; leave one of them out").into())
            }
            (None, None) => Err(Config::new(
                "no lock server is named; add `.url(\"redis://127.0.0.1:6379\")`, or use `LockManager::in_memory()`",
            )
            .into()),
        }
    }

    async fn store_on_servers(
        &self,
        service: &Service,
        namespace: &Namespace,
    ) -> Result<Arc<dyn LockStore>, LockError> {
        let target = |url: &String| -> Result<Target, LockError> {
            Ok(RedisStore::target(url, self.access(url)?, self.connect_timeout)?)
        };
        match service {
            Service::Redlock(urls) => {
                let mut seen: Vec<&str> = urls.iter().map(String::as_str).collect();
                seen.sort_unstable();
                if seen.windows(2).any(|pair| pair[0] == pair[1]) {
                    return Err(Config::new("Redlock was given the same server twice, which would count it as two; name independent servers").into());
                }
                let targets = urls.iter().map(target).collect::<Result<_, _>>()?;
                self.redlock_on(targets, namespace).await
            }
            Service::Server(url) => {
                let mut store = RedisStore::on(target(url)?, self.connect_timeout, self.response_timeout);
                if let Some((replicas, limit)) = self.replica_acks {
                    store = store.acknowledged(replicas, limit);
                }
                if !self.lazy {
                    store.ready(self.connect_timeout).await?;
                }
                Ok(Arc::new(store))
            }
            #[cfg(feature = "cluster")]
            Service::Cluster(url) => {
                let (access, connect_timeout) = (self.access(url)?, self.connect_timeout);
                let store = ClusterStore::open(url, access, connect_timeout, self.response_timeout, self.replica_acks)?;
                if !self.lazy {
                    store.ready(self.connect_timeout).await?;
                }
                Ok(Arc::new(store))
            }
            // Needs no server.
            Service::Memory => Err(Config::new("`memory:` has no server").into()),
        }
    }

    #[cfg(feature = "testing")]
    async fn store_on_streams(&self, namespace: &Namespace) -> Result<Arc<dyn LockStore>, LockError> {
        let Some(streams) = &self.streams else {
            let targets = self.server_streams.iter().cloned().map(Target::Streams).collect();
            return self.redlock_on(targets, namespace).await;
        };
        let target = Target::Streams(streams.clone());
        let store = RedisStore::on(target, self.connect_timeout, self.response_timeout);
        if !self.lazy {
            store.ready(self.connect_timeout).await?;
        }
        Ok(Arc::new(store))
    }

    async fn redlock_on(&self, targets: Vec<Target>, namespace: &Namespace) -> Result<Arc<dyn LockStore>, LockError> {
        let quarantine = self.longest_forgotten();
        let memory = Memory { epoch: namespace.epoch.clone(), quarantine };
        let store = Redlock::new(targets, memory, self.connect_timeout, self.response_timeout)?;
        if !self.lazy {
            store.ready(self.connect_timeout).await?;
        }
        Ok(Arc::new(store))
    }

    /// How one gets in at the servers of this URL.
    fn access(&self, url: &str) -> Result<Access, LockError> {
        let is_encrypted = url.starts_with("rediss");
        if self.tls.is_some() && !is_encrypted {
            return Err(Config::new(
                "`tls` is set and the URL asks for no encryption; write `rediss://host:port`, or leave `tls` out",
            )
            .into());
        }
        let credentials = self.credentials.clone();
        #[cfg(feature = "tls-rustls")]
        {
            let settings = || self.tls.clone().unwrap_or_default();
            let encryption = is_encrypted.then(|| Encryption::new(settings())).transpose()?;
            Ok(Access { encryption, credentials, ..Access::default() })
        }
        #[cfg(not(feature = "tls-rustls"))]
        if is_encrypted {
            Err(Config::new("`rediss://` needs TLS, which is not built in; turn on the feature `tls-rustls` of the crate `distlock`, as in `distlock = { version = \"0.1\", features = [\"tls-rustls\"] }`").into())
        } else {
            Ok(Access { credentials, ..Access::default() })
        }
    }

    fn check(&self) -> Result<(), LockError> {
        let bad = |problem: String| Err(Config::new(problem).into());
        let Defaults { ttl, max_ttl, drift, grace, .. } = self.defaults;
        if !(0.0..=MAX_DRIFT).contains(&drift) {
            return bad(format!(
                "`drift` of {drift} cannot be used; give a share of the ttl from 0 to {MAX_DRIFT}, as in `0.01`"
            ));
        }
        if !(MIN_TTL..=LONGEST_MAX_TTL).contains(&max_ttl) {
            return bad(format!("`max_ttl` of {max_ttl:?} cannot be used; give it from {MIN_TTL:?} to ten years"));
        }
        if ttl < MIN_TTL || ttl > max_ttl {
            return bad(format!(
                "`default_ttl` of {ttl:?} is not between {MIN_TTL:?} and `max_ttl` ({max_ttl:?}); change one of them"
            ));
        }
        if grace > max_ttl {
            return bad(format!("`grace` of {grace:?} is longer than `max_ttl` ({max_ttl:?}); shorten it"));
        }
        for (name, timeout) in [("response_timeout", self.response_timeout), ("connect_timeout", self.connect_timeout)]
        {
            if timeout.is_zero() {
                return bad(format!("`{name}` of zero lets no command be answered; give it some milliseconds"));
            }
            if timeout > LONGEST_TIMEOUT {
                return bad(format!(
                    "`{name}` of {timeout:?} is longer than {LONGEST_TIMEOUT:?}; give it some seconds at the most, for a caller waits as long as its `wait` says"
                ));
            }
        }
        match self.replica_acks {
            Some((0, _)) => {
                bad("`replica_acks` of no replica waits for nothing; name how many, or leave it out".to_owned())
            }
            Some((_, limit)) if limit.is_zero() || limit > LONGEST_TIMEOUT => bad(format!(
                "the limit {limit:?} of `replica_acks` is not above zero and within {LONGEST_TIMEOUT:?}; give it some milliseconds, far below the ttl"
            )),
            _ => Ok(()),
        }?;
        Ok(())
    }
}

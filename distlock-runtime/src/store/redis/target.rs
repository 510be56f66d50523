//! Where a connection leads: to a server's address, or, in tests, over streams that the test hands out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, RedisConnectionInfo, RedisError};
use tokio::io::{AsyncRead, AsyncWrite};

#[cfg(feature = "tls-rustls")]
use super::encryption::Encryption;
#[cfg(feature = "sentinel")]
use super::sentinel::Sentinels;
use super::stream::dial;
use crate::credentials::Credentials;
use crate::error::brief;
use crate::store::{StoreError, StoreErrorKind};

/// Makes connections to one node.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    // Boxed, for a server is much larger than a handle of streams.
    Server(Box<Server>),
    #[cfg(feature = "sentinel")]
    Sentinel(std::sync::Arc<Sentinels>),
    #[cfg(feature = "testing")]
    Streams(streams::Streams),
}

/// A server's address, and how one gets in.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) info: ConnectionInfo,
    pub(crate) access: Access,
}

/// What is the same for every node of a service.
#[derive(Clone, Debug, Default)]
pub(crate) struct Access {
    #[cfg(feature = "tls-rustls")]
    pub(crate) encryption: Option<Encryption>,
    /// Instead of the user and password of the URL.
    pub(crate) credentials: Option<Credentials>,
    /// A connection was made once, so the URL is right.
    pub(crate) has_worked: Arc<AtomicBool>,
}

/// Why there is no connection.
#[derive(Debug)]
pub(crate) enum Failure {
    /// As the client crate says it.
    Client(RedisError),
    /// Found before the client crate had anything to do.
    Before(StoreError),
}

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Self {
        Self::Client(error)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Before(error)
    }
}

/// A task that closes a connection once it leads to the wrong server. Ends with the last clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watch(#[expect(dead_code, reason = "it counts that it is dropped")] Option<std::sync::Arc<Watching>>);

#[derive(Debug)]
struct Watching(tokio::task::AbortHandle);

impl Watch {
    #[cfg(feature = "sentinel")]
    pub(super) fn spawn(task: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(Some(std::sync::Arc::new(Watching(tokio::spawn(task).abort_handle()))))
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Target {
    /// One attempt; the connection's driver runs on the current runtime.
    pub(crate) async fn connect(
        &self,
        config: &AsyncConnectionConfig,
    ) -> Result<(MultiplexedConnection, Watch), Failure> {
        let connection = match self {
            Self::Server(server) => {
                let connection = server.connect(config).await?;
                server.access.has_worked.store(true, Ordering::Relaxed);
                connection
            }
            #[cfg(feature = "sentinel")]
            Self::Sentinel(sentinels) => return sentinels.connect(config).await,
            #[cfg(feature = "testing")]
            Self::Streams(streams) => streams.connect(config.clone()).await?,
        };
        Ok((connection, Watch::default()))
    }

    /// What is said when an attempt took too long.
    pub(super) fn no_connection(&self, limit: Duration) -> String {
        format!("no connection to {} within {}{}", self.address(), brief(limit), self.other_scheme())
    }

    /// What may be wrong where a new connection stays silent or is cut: a server that speaks TLS and a client that does not
    /// have nothing to say to each other, nor have the opposites. Where a connection was made before, that is not it.
    pub(super) fn other_scheme(&self) -> &'static str {
        match self {
            Self::Server(server) if server.access.has_worked.load(Ordering::Relaxed) => "",
            #[cfg(feature = "tls-rustls")]
            Self::Server(server) if server.access.encryption.is_some() => {
                "; if the port is not one for TLS, write `redis://`"
            }
            Self::Server(server) if matches!(server.info.addr(), ConnectionAddr::Tcp(..)) => {
                "; if the port is one for TLS, write `rediss://`"
            }
            _ => "",
        }
    }

    /// What to do about a login that is refused.
    pub(super) fn login_advice(&self) -> &'static str {
        if self.server().is_some_and(|server| server.access.credentials.is_some()) {
            "see to what the provider of `Builder::credentials` gives"
        } else {
            "write `redis://user:password@host` or `redis://:password@host`, and percent-encode special characters"
        }
    }

    /// Which of the server's databases.
    pub(super) fn database(&self) -> i64 {
        self.server().map_or(0, |server| server.info.redis_settings().db())
    }

    /// How one gets in at what is locked on.
    fn server(&self) -> Option<&Server> {
        match self {
            Self::Server(server) => Some(server),
            #[cfg(feature = "sentinel")]
            Self::Sentinel(sentinels) => Some(sentinels.primary()),
            #[cfg(feature = "testing")]
            Self::Streams(_) => None,
        }
    }

    /// Where the node is, without the credentials that the URL may have held.
    pub(crate) fn address(&self) -> String {
        match self {
            Self::Server(server) => server.info.addr().to_string(),
            #[cfg(feature = "sentinel")]
            Self::Sentinel(sentinels) => sentinels.address(),
            #[cfg(feature = "testing")]
            Self::Streams(_) => "the test's stream".to_owned(),
        }
    }
}

impl Server {
    pub(super) async fn connect(&self, config: &AsyncConnectionConfig) -> Result<MultiplexedConnection, Failure> {
        let info = self.with_login().await?;
        #[cfg(feature = "tls-rustls")]
        if let (Some(encryption), ConnectionAddr::Tcp(host, port)) = (&self.access.encryption, info.addr()) {
            let stream = encryption.connect(host, *port).await?;
            return speak(&info, stream, config).await.map_err(|error| {
                match super::encryption::alert_in(&error.to_string()) {
                    Some(refused) => Failure::Before(refused),
                    None => error.into(),
                }
            });
        }
        if let ConnectionAddr::Tcp(host, port) = info.addr() {
            let stream = dial(host, *port).await.map_err(RedisError::from)?;
            return Ok(speak(&info, stream, config).await?);
        }
        Ok(Client::open(info)?.get_multiplexed_async_connection_with_config(config).await?)
    }

    /// With whoever this process is now.
    async fn with_login(&self) -> Result<ConnectionInfo, StoreError> {
        let info = self.info.clone();
        let Some(credentials) = &self.access.credentials else { return Ok(info) };
        let login = credentials.login().await.map_err(|error| {
            StoreError::new(
                StoreErrorKind::Unavailable,
                format!("the provider of `Builder::credentials` gave no login: {error}"),
            )
        })?;
        let known = info.redis_settings();
        let mut settings = RedisConnectionInfo::default().set_db(known.db()).set_protocol(known.protocol());
        settings = settings.set_password(login.password);
        if let Some(user) = login.user {
            settings = settings.set_username(user);
        }
        Ok(info.set_redis_settings(settings))
    }
}

/// Begins to speak with the server at the other end of a stream.
async fn speak(
    info: &ConnectionInfo,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    config: &AsyncConnectionConfig,
) -> Result<MultiplexedConnection, RedisError> {
    let (connection, driver) =
        MultiplexedConnection::new_with_config(info.redis_settings(), stream, config.clone()).await?;
    tokio::spawn(driver);
    Ok(connection)
}

#[cfg(feature = "testing")]
pub(crate) mod streams {
    //! Streams instead of sockets: with in-process ones the whole path runs under tokio's paused time.

    use std::fmt;
    use std::future::Future;
    use std::io;
    use std::sync::Arc;

    use redis::aio::MultiplexedConnection;
    use redis::{AsyncConnectionConfig, ProtocolVersion, RedisConnectionInfo, RedisResult};
    use tokio::io::{AsyncRead, AsyncWrite};

    use crate::store::BoxFuture;

    trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

    impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

    type Open = dyn Fn() -> BoxFuture<'static, io::Result<Box<dyn Stream>>> + Send + Sync;

    /// Opens a stream per connection.
    #[derive(Clone)]
    pub(crate) struct Streams(Arc<Open>);

    impl Streams {
        pub(crate) fn new<S, F>(open: impl Fn() -> F + Send + Sync + 'static) -> Self
        where
            S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
            F: Future<Output = io::Result<S>> + Send + 'static,
        {
            Self(Arc::new(move || {
                let opening = open();
                Box::pin(async move { Ok(Box::new(opening.await?) as Box<dyn Stream>) })
            }))
        }

        pub(super) async fn connect(&self, config: AsyncConnectionConfig) -> RedisResult<MultiplexedConnection> {
            let stream = (self.0)().await?;
            let info = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3);
            let (connection, driver) = MultiplexedConnection::new_with_config(&info, stream, config).await?;
            tokio::spawn(driver);
            Ok(connection)
        }
    }

    impl fmt::Debug for Streams {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Streams")
        }
    }
}

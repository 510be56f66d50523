//! Where a connection leads: to a server's address, or, in tests, over streams that the test hands out.

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisResult};

/// Makes connections to one node.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    // Boxed, for a client is much larger than a handle of streams.
    Server(Box<Client>),
    #[cfg(feature = "testing")]
    Streams(streams::Streams),
}

impl Target {
    /// One attempt; the connection's driver runs on the current runtime.
    pub(crate) async fn connect(&self, config: &AsyncConnectionConfig) -> RedisResult<MultiplexedConnection> {
        match self {
            Self::Server(client) => client.get_multiplexed_async_connection_with_config(config).await,
            #[cfg(feature = "testing")]
            Self::Streams(streams) => streams.connect(config.clone()).await,
        }
    }

    /// Where the node is, without the credentials that the URL may have held.
    pub(crate) fn address(&self) -> String {
        match self {
            Self::Server(client) => client.get_connection_info().addr().to_string(),
            #[cfg(feature = "testing")]
            Self::Streams(_) => "the test's stream".to_owned(),
        }
    }
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

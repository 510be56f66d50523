//! Which lock service a URL names.

use crate::error::{Config, LockError};

/// What can be written, for an error.
const SCHEMES: &str = "write `redis://host:port`, `rediss://host:port` with TLS, `redis+sentinel://host,host/name`, `redis+cluster://host,host`, `redlock:redis://a,redis://b,redis://c`, `unix:///path` or `memory:`";

pub(crate) enum Service {
    /// None: this process alone.
    Memory,
    /// One server, or a primary that Sentinels name, with a URL that its store can read.
    Server(String),
    /// Several independent servers, of which a majority decides.
    Redlock(Vec<String>),
    /// A cluster, with the hosts where a server's URL has one.
    #[cfg(feature = "cluster")]
    Cluster(String),
}

impl Service {
    /// One server for each URL.
    pub(crate) fn redlock<'a>(urls: impl Iterator<Item = &'a str>) -> Result<Self, LockError> {
        let server = |url: &str| {
            match Self::of(url)? {
            Self::Server(url) => Ok(url),
            _ => Err(Config::new(
                "each URL of Redlock names one server; write `redlock:redis://a,redis://b,redis://c`, or `.redlock([\"redis://a\", …])`",
            )
            .into()),
        }
        };
        urls.map(server).collect::<Result<_, LockError>>().map(Self::Redlock)
    }

    /// Reads the scheme. Kinds of service that this build cannot use are refused by name.
    pub(crate) fn of(url: &str) -> Result<Self, LockError> {
        let url = url.trim();
        if url.is_empty() {
            return Err(Config::new(format!("the URL of the lock server is empty; {SCHEMES}")).into());
        }
        if url == "memory:" || url == "memory://" {
            return Ok(Self::Memory);
        }
        if let Some(urls) = url.strip_prefix("redlock:") {
            if urls.split(',').any(|url| url.trim().is_empty()) {
                return Err(Config::new(
                    "`redlock:` has a place without a server; write `redlock:redis://a,redis://b,redis://c`, and percent-encode `,` in a password",
                )
                .into());
            }
            return Self::redlock(urls.split(','));
        }
        let Some((scheme, _)) = url.split_once("://") else {
            return Ok(Self::Server(format!("redis://{url}")));
        };
        let rest = &url[scheme.len()..];
        match scheme.to_ascii_lowercase().as_str() {
            "redis" | "valkey" => Ok(Self::Server(format!("redis{rest}"))),
            "unix" | "redis+unix" | "valkey+unix" => Ok(Self::Server(format!("unix{rest}"))),
            "rediss" | "valkeys" => Ok(Self::Server(format!("rediss{rest}"))),
            #[cfg(feature = "cluster")]
            "redis+cluster" | "valkey+cluster" | "redis-cluster" | "cluster" => Ok(Self::Cluster(format!("redis{rest}"))),
            #[cfg(feature = "cluster")]
            "rediss+cluster" | "valkeys+cluster" | "rediss-cluster" => Ok(Self::Cluster(format!("rediss{rest}"))),
            #[cfg(not(feature = "cluster"))]
            "redis+cluster" | "valkey+cluster" | "redis-cluster" | "cluster" | "rediss+cluster" | "valkeys+cluster"
            | "rediss-cluster" => Err(Config::new(
                "`redis+cluster://` needs the feature `cluster`; write `features = [\"cluster\"]` at `distlock` in Cargo.toml",
            )
            .into()),
            #[cfg(feature = "sentinel")]
            "redis+sentinel" | "valkey+sentinel" | "redis-sentinel" | "sentinel" => {
                Ok(Self::Server(format!("redis+sentinel{rest}")))
            }
            #[cfg(not(feature = "sentinel"))]
            "redis+sentinel" | "valkey+sentinel" | "redis-sentinel" | "sentinel" => Err(Config::new(
                "`redis+sentinel://` needs the feature `sentinel`; write `features = [\"sentinel\"]` at `distlock` in Cargo.toml",
            )
            .into()),
            "redis+sentinels" | "rediss+sentinel" => {
                Err(not_in_this_build("rediss+sentinel://", "TLS to Sentinels and their primary"))
            }
            _ => {
                Err(Config::new(format!("the URL's scheme is unknown; {SCHEMES}")).into())
            }
        }
    }
}

impl Service {
    /// Whether replicas may stand behind it that it can wait for.
    pub(crate) fn has_replicas(&self) -> bool {
        match self {
            Self::Server(_) => true,
            #[cfg(feature = "cluster")]
            Self::Cluster(_) => true,
            Self::Redlock(_) | Self::Memory => false,
        }
    }
}

fn not_in_this_build(scheme: &str, what: &str) -> LockError {
    Config::new(format!(
        "`{scheme}` needs {what}, which this version does not have yet; use `redis://` with one server"
    ))
    .into()
}

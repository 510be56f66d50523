//! Which lock service a URL names.

use crate::error::{Config, LockError};

pub(crate) enum Service {
    /// None: this process alone.
    Memory,
    /// One server, with a URL that its store can read.
    Server(String),
}

impl Service {
    /// Reads the scheme. Kinds of service that this build cannot use are refused by name.
    pub(crate) fn of(url: &str) -> Result<Self, LockError> {
        let url = url.trim();
        if url.is_empty() {
            return Err(Config::new(
                "the URL of the lock server is empty; write `redis://host:port`, `unix:///path` or `memory:`",
            )
            .into());
        }
        if url == "memory:" || url == "memory://" {
            return Ok(Self::Memory);
        }
        if url.starts_with("redlock:") {
            return Err(not_in_this_build("redlock:", "several independent servers"));
        }
        let Some((scheme, _)) = url.split_once("://") else {
            return Ok(Self::Server(format!("redis://{url}")));
        };
        let rest = &url[scheme.len()..];
        match scheme.to_ascii_lowercase().as_str() {
            "redis" | "valkey" => Ok(Self::Server(format!("redis{rest}"))),
            "unix" | "redis+unix" | "valkey+unix" => Ok(Self::Server(format!("unix{rest}"))),
            "rediss" | "valkeys" => Err(not_in_this_build("rediss://", "TLS (feature `tls-rustls`)")),
            "redis+cluster" | "redis-cluster" | "cluster" => {
                Err(not_in_this_build("redis+cluster://", "Redis Cluster (feature `cluster`)"))
            }
            "redis+sentinel" | "redis-sentinel" | "sentinel" => {
                Err(not_in_this_build("redis+sentinel://", "Sentinel (feature `sentinel`)"))
            }
            _ => {
                Err(Config::new("the URL's scheme is unknown; write `redis://host:port`, `unix:///path` or `memory:`")
                    .into())
            }
        }
    }
}

fn not_in_this_build(scheme: &str, what: &str) -> LockError {
    Config::new(format!(
        "`{scheme}` needs {what}, which this version does not have yet; use `redis://` with one server"
    ))
    .into()
}

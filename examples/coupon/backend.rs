//! Where the locks live: on the user's server, on one started for this run, on one inside of this program, or in memory.

use std::fmt;
use std::net::SocketAddr;

use distlock_testkit::{EmbeddedServer, Server};

use crate::options::{Options, Wanted};

/// The lock service of this run.
pub(crate) struct Backend {
    place: Place,
    why: String,
}

enum Place {
    Url(String),
    Started(Box<Server>),
    Embedded {
        address: SocketAddr,
        /// Ends when this is dropped.
        _server: EmbeddedServer,
    },
    Memory,
}

impl Backend {
    /// Does as `--backend` says.
    pub(crate) async fn choose(options: &Options) -> Result<Self, String> {
        let backend = match &options.backend {
            Wanted::Auto => Self::auto().await,
            Wanted::Spawn => Self::started("as `--backend spawn` says"),
            Wanted::Embedded => Self::embedded("as `--backend embedded` says".to_owned()).await,
            Wanted::Memory => Ok(Self { place: Place::Memory, why: "as `--backend memory` says".to_owned() }),
            Wanted::Url(url) => Ok(Self::at(url, "as `--backend` says")),
        }?;
        if options.kill && backend.url().is_none() {
            return Err(format!(
                "`--kill` needs worker processes, and the locks are in memory, {}; give the URL of a server with `--backend`",
                backend.why
            ));
        }
        Ok(backend)
    }

    /// The user's server, else one found on this machine, else the one in this program.
    async fn auto() -> Result<Self, String> {
        match std::env::var("DISTLOCK_URL") {
            Ok(url) if !url.is_empty() => return Ok(Self::at(&url, "named by `DISTLOCK_URL`")),
            Err(std::env::VarError::NotUnicode(_)) => {
                return Err("`DISTLOCK_URL` is no text; set it to a URL".to_owned());
            }
            _ => {}
        }
        match Server::available() {
            Ok(_) => Self::started("found on this machine"),
            Err(missing) => Self::embedded(format!("for want of another: {missing}")).await,
        }
    }

    async fn embedded(why: String) -> Result<Self, String> {
        let server = EmbeddedServer::new();
        let address = server.serve_tcp().await.map_err(|error| error.to_string())?;
        Ok(Self { place: Place::Embedded { address, _server: server }, why })
    }

    fn started(why: &str) -> Result<Self, String> {
        let server = Server::spawn().map_err(|error| error.to_string())?;
        Ok(Self { place: Place::Started(Box::new(server)), why: why.to_owned() })
    }

    fn at(url: &str, why: &str) -> Self {
        // Locks in memory reach no other process, whoever asked for them.
        let place = if url.starts_with("memory:") { Place::Memory } else { Place::Url(url.to_owned()) };
        Self { place, why: why.to_owned() }
    }

    /// How worker processes reach it; `None` if they cannot.
    pub(crate) fn url(&self) -> Option<String> {
        match &self.place {
            Place::Url(url) => Some(url.clone()),
            Place::Started(server) => Some(server.url()),
            Place::Embedded { address, .. } => Some(format!("redis://{address}")),
            Place::Memory => None,
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            // What stands before the host may be a password.
            Place::Url(url) => write!(f, "backend: the server at {}, ", url.rsplit(['@', '/']).next().unwrap_or(""))?,
            Place::Started(server) => write!(f, "backend: a server of this run's own on port {}, ", server.port())?,
            Place::Embedded { address, .. } => {
                write!(f, "backend: a server inside of this program on port {}, ", address.port())?;
            }
            Place::Memory => f.write_str("backend: memory; the workers are tasks of one process, ")?,
        }
        f.write_str(&self.why)
    }
}

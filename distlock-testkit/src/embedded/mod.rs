//! A lock server inside of the test's own process: nothing to install, virtual time, faults on demand.
//!
//! `commands` and `script` are what it can do, `data` is what it keeps, `node` its life, `connection` its wire.

mod clock;
mod commands;
mod connection;
mod core;
mod data;
mod glob;
mod log;
mod node;
mod script;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::DuplexStream;
use tokio::net::TcpListener;

pub use self::clock::ServerClock;
pub use self::log::Executed;
use self::node::Node;
use crate::{Error, Fault, Injected, Match, Reply, Result};

/// How many bytes a connection in memory holds in each direction before its sender has to wait, as sockets do.
const WINDOW: usize = 256 * 1024;

/// Tells the servers of one process apart.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// A server that speaks the part of Redis that locks need, in RESP2 and RESP3, and runs Lua scripts as Redis 7 does.
///
/// **For development and tests only**: it keeps nothing on disk, knows one database and some eighty commands, and is
/// reached over TCP from this machine alone. A command it does not know is refused in Redis' own words.
///
/// * [`connect`](Self::connect) gives a connection in memory, which works under tokio's paused time;
///   [`serve_tcp`](Self::serve_tcp) an address for other clients and processes. Do not use the second with paused time,
///   for the system's sockets know nothing of it.
/// * [`inject`](Self::inject) lets things go wrong, [`freeze`](Self::freeze) and [`restart`](Self::restart) are what
///   happens to servers, [`clock`](Self::clock) is what it takes for the time.
/// * [`command`](Self::command) and [`log`](Self::log) look behind a client's back.
///
/// Its tasks run on the runtime on which it is used, and end with the handle.
///
/// ```
/// use distlock_testkit::{EmbeddedServer, Fault, Match};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = EmbeddedServer::new();
/// let config = redis::AsyncConnectionConfig::new();
/// let info = redis::RedisConnectionInfo::default();
/// let (mut client, driver) =
///     redis::aio::MultiplexedConnection::new_with_config(&info, server.connect(), config).await?;
/// tokio::spawn(driver);
///
/// server.inject(Match::nth(1).command("SET"), Fault::CutAfter);
/// let cut: redis::RedisResult<()> = redis::cmd("SET").arg("k").arg("v").query_async(&mut client).await;
/// assert!(cut.is_err());
/// assert_eq!(server.command(&["GET", "k"])?.as_text(), Some("v")); // executed all the same
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "the server ends when this is dropped"]
pub struct EmbeddedServer {
    node: Arc<Node>,
}

/// Settings of an [`EmbeddedServer`].
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct EmbeddedBuilder {
    password: Option<String>,
}

impl EmbeddedBuilder {
    /// Asks clients for this password.
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// Starts the server.
    pub fn start(self) -> EmbeddedServer {
        let name = format!("node {}", NEXT.fetch_add(1, Ordering::Relaxed));
        EmbeddedServer { node: Arc::new(Node::new(name, self.password)) }
    }
}

impl Default for EmbeddedServer {
    fn default() -> Self {
        Self::new()
    }
}

impl EmbeddedServer {
    /// Starts an empty server. Its clock is the system's, or under paused time begins at a fixed moment.
    pub fn new() -> Self {
        Self::builder().start()
    }

    /// Begins a server with settings.
    pub fn builder() -> EmbeddedBuilder {
        EmbeddedBuilder::default()
    }

    /// Starts servers that know nothing of each other, as Redlock wants them.
    #[must_use]
    pub fn many(count: usize) -> Vec<Self> {
        (0..count).map(|_| Self::new()).collect()
    }

    /// A new connection in memory; this is the client's end. A stopped server gives one that is closed.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    #[must_use]
    pub fn connect(&self) -> DuplexStream {
        let (ours, theirs) = tokio::io::duplex(WINDOW);
        if let Some(admitted) = self.node.admit() {
            tokio::spawn(connection::serve(Arc::clone(&self.node), admitted, ours));
        }
        theirs
    }

    /// Listens on a free port of the loopback interface, as long as the server lives; a stopped server accepts
    /// connections there and closes them. Can be called several times.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if there is no port to be had.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, nothing listens.
    pub async fn serve_tcp(&self) -> Result<SocketAddr> {
        let doing = "listen on the loopback interface";
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(Error::io(doing))?;
        let address = listener.local_addr().map_err(Error::io(doing))?;
        tokio::spawn(accept(Arc::clone(&self.node), listener));
        Ok(address)
    }

    /// Executes a command at once, whatever the state of the server and the faults in force, and answers as
    /// [`Server::command`](crate::Server::command) does.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] for an error answer.
    pub fn command(&self, parts: &[&str]) -> Result<Reply> {
        self.node.direct(&parts.iter().map(|part| part.as_bytes().to_vec()).collect()).into_reply()
    }

    /// Lets this go wrong with the commands that fit and arrive from now on. The first of several that are due decides.
    pub fn inject(&self, matches: Match, fault: Fault) -> Injected {
        self.node.rules.inject(matches, fault)
    }

    /// Takes all faults back. Connections that a fault has silenced stay silent.
    pub fn clear(&self) {
        self.node.rules.clear();
    }

    /// The server's clock, to be bent.
    #[must_use]
    pub fn clock(&self) -> &ServerClock {
        &self.node.clock
    }

    /// Stops executing, as `SIGSTOP` does. Connections stay, new ones are accepted, and what comes in is kept.
    pub fn freeze(&self) {
        self.node.freeze();
    }

    /// Goes on: executes what came in meanwhile in the order of its arrival, also from connections that have been
    /// closed since.
    pub fn thaw(&self) {
        self.node.thaw();
    }

    /// Cuts all connections, loses the script cache and what was not executed yet, and refuses connections until
    /// [`start`](Self::start).
    pub fn stop(&self) {
        self.node.stop();
    }

    /// Comes back after [`stop`](Self::stop), with the keys of before or with none.
    pub fn start(&self, with_data: bool) {
        self.node.start(with_data);
    }

    /// [`stop`](Self::stop) and [`start`](Self::start) in one.
    pub fn restart(&self, with_data: bool) {
        self.stop();
        self.start(with_data);
    }

    /// How many connections there are.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.node.connections()
    }

    /// What the server has executed, oldest first; the last 100,000 commands are kept. What a script calls is part of
    /// the script.
    #[must_use]
    pub fn log(&self) -> Vec<Executed> {
        self.node.log()
    }

    /// Forgets what was executed so far.
    pub fn clear_log(&self) {
        self.node.clear_log();
    }
}

impl Drop for EmbeddedServer {
    fn drop(&mut self) {
        self.node.end();
    }
}

/// Takes connections until the server's handle is gone.
async fn accept(node: Arc<Node>, listener: TcpListener) {
    let mut gone = node.gone();
    loop {
        let accepted = tokio::select! {
            biased;
            _ = gone.wait_for(|gone| *gone) => return,
            accepted = listener.accept() => accepted,
        };
        // A connection that was given up before it was accepted is no reason to stop.
        let Ok((stream, _)) = accepted else { continue };
        let Some(admitted) = node.admit() else { continue };
        let _ = stream.set_nodelay(true);
        tokio::spawn(connection::serve(Arc::clone(&node), admitted, stream));
    }
}

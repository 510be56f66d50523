//! A proxy on the loopback interface in front of a server, which lets things go wrong between the two.
//!
//! It reads the commands that pass and counts the answers, so that a fault strikes exactly the command it is meant for.
//! What it does with one connection is in `carry.rs`.

mod carry;

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::select;
use tokio::sync::watch;

use crate::fault::Rules;
use crate::{Error, Fault, Injected, Match, Result};

/// A proxy in front of one server, with faults that are injected while it runs.
///
/// Its tasks run on the runtime on which it is started; dropping it ends it and cuts its connections. It listens on the
/// loopback interface only.
///
/// ```no_run
/// use distlock_testkit::{Fault, FaultProxy, Match, Server};
///
/// # async fn example() -> distlock_testkit::Result<()> {
/// let server = Server::spawn()?;
/// let proxy = FaultProxy::start(server.port()).await?;
/// proxy.inject(Match::nth(1).command("EVALSHA"), Fault::DropReply);
/// let url = proxy.url(); // for the client under test
/// # let _ = url;
/// # Ok(())
/// # }
/// ```
#[must_use = "the proxy ends when this is dropped"]
pub struct FaultProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    rules: Rules,
    upstream: SocketAddr,
    /// Counts up to cut all connections of before; at [`GONE`] the proxy ends.
    cuts: watch::Sender<u64>,
}

/// The value of `cuts` that ends the proxy.
const GONE: u64 = u64::MAX;

impl fmt::Debug for FaultProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultProxy")
            .field("address", &self.address)
            .field("upstream", &self.shared.upstream)
            .finish_non_exhaustive()
    }
}

impl FaultProxy {
    /// Starts a proxy on a free port in front of the server on this port of this machine.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if there is no port to be had. A server that does not listen shows when somebody connects.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, nothing listens.
    pub async fn start(port: u16) -> Result<Self> {
        let doing = "listen on the loopback interface";
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(Error::io(doing))?;
        let address = listener.local_addr().map_err(Error::io(doing))?;
        let upstream = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let shared = Arc::new(Shared { rules: Rules::default(), upstream, cuts: watch::channel(0).0 });
        tokio::spawn(accept(Arc::clone(&shared), listener));
        Ok(Self { address, shared })
    }

    /// Where clients connect to, as in `redis://127.0.0.1:33445`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// The port on which it listens.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Lets this go wrong with the commands that fit and arrive from now on. The first of several that are due decides.
    pub fn inject(&self, matches: Match, fault: Fault) -> Injected {
        self.shared.rules.inject(matches, fault)
    }

    /// Takes all faults back. Connections that a fault has silenced stay silent.
    pub fn clear(&self) {
        self.shared.rules.clear();
    }

    /// Cuts all connections; new ones are accepted.
    pub fn cut(&self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.shared.cuts.send_replace(GONE);
    }
}

async fn accept(shared: Arc<Shared>, listener: TcpListener) {
    let mut cuts = shared.cuts.subscribe();
    loop {
        let accepted = select! {
            _ = cuts.wait_for(|cuts| *cuts == GONE) => return,
            accepted = listener.accept() => accepted,
        };
        // A connection that was given up before it was accepted is no reason to stop.
        let Ok((client, _)) = accepted else { continue };
        let shared = Arc::clone(&shared);
        let mut cuts = shared.cuts.subscribe();
        cuts.mark_unchanged();
        tokio::spawn(async move {
            // Closing is the answer to all that can go wrong here, as it is the network's.
            let _ = carry::carry(shared, client, cuts).await;
        });
    }
}

//! A primary with replicas, and the Sentinels that replace it: real processes, and failovers on demand.
//!
//! The settings are those of an impatient operator, so that a failover takes about two seconds. Killing, freezing and asking a
//! process is the business of [`Server`], for each of them is one.

use std::thread;
use std::time::{Duration, Instant};

use crate::{Error, Reply, Result, Server};

/// What the Sentinels call the primary.
const NAME: &str = "mymaster";

const REPLICAS: usize = 2;
const SENTINELS: usize = 3;

/// How many Sentinels must agree that the primary is down.
const QUORUM: usize = 2;

/// How long a primary may be silent, in milliseconds.
const DOWN_AFTER: &str = "500";

/// How long one step of a failover may take, in milliseconds; the next one begins twice as much later at the earliest.
const FAILOVER_TIMEOUT: &str = "2000";

/// What has not come about after this long will not.
const SETTLED_WITHIN: Duration = Duration::from_secs(40);

const ASK_EVERY: Duration = Duration::from_millis(20);

/// How to start a set; made by [`SentinelSet::builder`].
#[derive(Clone, Debug, Default)]
#[must_use = "a builder starts nothing until `spawn`"]
pub struct SentinelBuilder {
    password: Option<String>,
    sentinel_password: Option<String>,
}

impl SentinelBuilder {
    /// Makes the primary and the replicas want a password. It stands in URLs as it is: use letters and digits.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Makes the Sentinels want a password, which may be another one.
    pub fn sentinel_password(mut self, password: &str) -> Self {
        self.sentinel_password = Some(password.to_owned());
        self
    }

    /// Starts all processes and waits until they know each other.
    ///
    /// # Errors
    ///
    /// As [`Builder::spawn`](crate::Builder::spawn) of a server, and [`Error::Unsettled`] if they do not find each other.
    pub fn spawn(self) -> Result<SentinelSet> {
        let nodes: Vec<_> = (0..=REPLICAS).map(|_| self.node().spawn()).collect::<Result<_>>()?;
        let primary = nodes[0].port();
        for replica in &nodes[1..] {
            replicate(replica, primary)?;
        }
        let sentinels: Vec<_> = (0..SENTINELS).map(|_| self.sentinel(primary).spawn()).collect::<Result<_>>()?;
        let set = SentinelSet { builder: self, nodes, sentinels };
        for sentinel in &set.sentinels {
            set.hurry(sentinel);
        }
        set.wait_until_stable()?;
        Ok(set)
    }

    fn node(&self) -> crate::Builder {
        let builder = Server::builder()
            // A replica is at work as soon as it has asked for it.
            .setting("repl-diskless-sync", "yes")
            .setting("repl-diskless-sync-delay", "0");
        match &self.password {
            Some(password) => builder.password(password).setting("masterauth", password),
            None => builder,
        }
    }

    fn sentinel(&self, primary: u16) -> crate::Builder {
        let mut lines = vec![
            format!("sentinel monitor {NAME} 127.0.0.1 {primary} {QUORUM}"),
            format!("sentinel down-after-milliseconds {NAME} {DOWN_AFTER}"),
            format!("sentinel failover-timeout {NAME} {FAILOVER_TIMEOUT}"),
            format!("sentinel parallel-syncs {NAME} {REPLICAS}"),
        ];
        lines.extend(self.password.iter().map(|password| format!("sentinel auth-pass {NAME} {password}")));
        let builder = Server::builder();
        let builder = match &self.sentinel_password {
            Some(password) => {
                lines.push(format!("sentinel sentinel-pass {password}"));
                builder.password(password)
            }
            None => builder,
        };
        builder.sentinel(lines.join("\n") + "\n")
    }
}

/// One primary, two replicas and three Sentinels. Dropping it ends all of them.
///
/// ```no_run
/// # fn main() -> distlock_testkit::Result<()> {
/// use distlock_testkit::SentinelSet;
///
/// let set = SentinelSet::spawn()?;
/// let old = set.primary()?;
/// old.kill()?;
/// set.wait_for_failover(old)?;
/// set.rejoin(old)?; // as a replica of the new one
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "all processes are killed when this is dropped"]
pub struct SentinelSet {
    builder: SentinelBuilder,
    nodes: Vec<Server>,
    sentinels: Vec<Server>,
}

impl SentinelSet {
    /// Starts a set without passwords.
    ///
    /// # Errors
    ///
    /// As [`SentinelBuilder::spawn`].
    pub fn spawn() -> Result<Self> {
        Self::builder().spawn()
    }

    /// For a set with passwords.
    pub fn builder() -> SentinelBuilder {
        SentinelBuilder::default()
    }

    /// What the Sentinels call the primary.
    #[must_use]
    pub fn name(&self) -> &'static str {
        NAME
    }

    /// How clients find the primary, as in `redis+sentinel://127.0.0.1:20123,127.0.0.1:20124/mymaster`.
    #[must_use]
    pub fn url(&self) -> String {
        let login = self.builder.password.iter().map(|password| format!(":{password}@")).collect::<String>();
        let hosts: Vec<_> = self.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port())).collect();
        let query = self.builder.sentinel_password.iter().map(|it| format!("?sentinel_password={it}"));
        format!("redis+sentinel://{login}{}/{NAME}{}", hosts.join(","), query.collect::<String>())
    }

    /// The primary and the replicas, whichever of them is what now.
    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    /// The Sentinels.
    pub fn sentinels(&self) -> &[Server] {
        &self.sentinels
    }

    /// The node that most of the Sentinels name as the primary.
    ///
    /// # Errors
    ///
    /// [`Error::Unsettled`] when no majority of all Sentinels, the dead ones counted, names the same one.
    pub fn primary(&self) -> Result<&Server> {
        let named: Vec<_> = self.sentinels.iter().filter_map(|sentinel| self.named_by(sentinel)).collect();
        let node = self.nodes.iter().find(|node| named.iter().filter(|port| **port == node.port()).count() >= QUORUM);
        node.ok_or_else(|| self.unsettled())
    }

    /// The nodes that run and are not the primary.
    ///
    /// # Errors
    ///
    /// As [`primary`](Self::primary).
    pub fn replicas(&self) -> Result<Vec<&Server>> {
        let primary = self.primary()?.port();
        Ok(self.running().filter(|node| node.port() != primary).collect())
    }

    /// Has the Sentinels replace a primary that is well, as an operator does before maintenance: it is demoted in place.
    /// Comes back when the failover has begun.
    ///
    /// # Errors
    ///
    /// [`Error::Unsettled`] when no Sentinel begins one.
    pub fn demote_primary(&self) -> Result<()> {
        // One that has just led a failover, or seen one, wants a rest.
        self.eventually(|| {
            let alive = |sentinel: &&Server| is_up(sentinel);
            self.sentinels.iter().filter(alive).any(|it| it.command(&["SENTINEL", "FAILOVER", NAME]).is_ok())
        })
    }

    /// Waits until the Sentinels name another primary than `old`, and it says itself that it is one.
    ///
    /// # Errors
    ///
    /// [`Error::Unsettled`] when they do not.
    pub fn wait_for_failover(&self, old: &Server) -> Result<&Server> {
        self.eventually(|| {
            self.primary()
                .is_ok_and(|primary| primary.port() != old.port() && role(primary).is_some_and(|it| it.primary))
        })?;
        self.primary()
    }

    /// Starts a killed node with nothing in it and makes it a replica. `Server::restart_empty` alone lets it believe that it
    /// is a primary until the Sentinels find it.
    ///
    /// # Errors
    ///
    /// As [`Server::restart_empty`].
    pub fn rejoin(&self, node: &Server) -> Result<()> {
        node.restart_empty()?;
        let primary = self.primary()?.port();
        if primary != node.port() { replicate(node, primary) } else { Ok(()) }
    }

    /// Starts a killed Sentinel with what it knew.
    ///
    /// # Errors
    ///
    /// As [`Builder::spawn`](crate::Builder::spawn) of a server.
    pub fn restart_sentinel(&self, sentinel: &Server) -> Result<()> {
        sentinel.start_again()?;
        self.hurry(sentinel);
        Ok(())
    }

    /// Waits until all Sentinels that run name the same primary and know everybody, and all nodes that run replicate it.
    ///
    /// # Errors
    ///
    /// [`Error::Unsettled`] with what everybody says if it takes too long.
    pub fn wait_until_stable(&self) -> Result<()> {
        self.eventually(|| self.is_stable())
    }

    fn is_stable(&self) -> bool {
        let Ok(primary) = self.primary() else { return false };
        let running: Vec<_> = self.running().collect();
        let replicates = |node: &&Server| match role(node) {
            Some(role) if node.port() == primary.port() => role.primary && role.replicas == running.len() - 1,
            Some(role) => role.follows == Some(primary.port()),
            None => false,
        };
        let knows = |sentinel: &Server| {
            let known = |field: &str| fact(sentinel, field).and_then(|text| text.parse::<usize>().ok());
            self.named_by(sentinel) == Some(primary.port())
                && fact(sentinel, "flags").as_deref() == Some("master")
                && known("num-slaves").is_some_and(|count| count >= running.len() - 1)
                && known("num-other-sentinels") == Some(self.sentinels.len() - 1)
                && sentinel.command(&["SENTINEL", "CKQUORUM", NAME]).is_ok()
        };
        running.iter().all(replicates) && self.sentinels.iter().filter(|it| is_up(it)).all(knows)
    }

    fn running(&self) -> impl Iterator<Item = &Server> {
        self.nodes.iter().filter(|node| is_up(node))
    }

    fn named_by(&self, sentinel: &Server) -> Option<u16> {
        if !is_up(sentinel) {
            return None;
        }
        let reply = sentinel.command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME]).ok()?;
        reply.as_list()?.get(1)?.as_text()?.parse().ok()
    }

    /// Lets Sentinels find each other and correct what they see in less than the usual seconds. Old ones refuse.
    fn hurry(&self, sentinel: &Server) {
        // One ping in each `DOWN_AFTER`, which is the usual, declares a new primary down before its first answer; and a
        // replica whose last report is older than five pings is not promoted, while it is asked for one each second.
        let periods = [("ping-period", "300"), ("info-period", "500"), ("publish-period", "200")];
        // A busy machine stops all of them for a while; they are not to retire for half a minute then.
        for (what, millis) in periods.into_iter().chain([("tilt-trigger", "20000")]) {
            let _ = sentinel.command(&["SENTINEL", "DEBUG", what, millis]);
        }
    }

    fn eventually(&self, mut is_so: impl FnMut() -> bool) -> Result<()> {
        let until = Instant::now() + SETTLED_WITHIN;
        while !is_so() {
            if Instant::now() > until {
                return Err(self.unsettled());
            }
            thread::sleep(ASK_EVERY);
        }
        Ok(())
    }

    fn unsettled(&self) -> Error {
        let nodes = self.nodes.iter().map(|node| format!("{}: {:?}", node.port(), is_up(node).then(|| role(node))));
        let sentinels = self.sentinels.iter().map(|sentinel| {
            let facts = ["flags", "port", "num-slaves", "num-other-sentinels"];
            let facts = is_up(sentinel).then(|| facts.map(|field| fact(sentinel, field)));
            format!("Sentinel {}: {facts:?}", sentinel.port())
        });
        Error::Unsettled(nodes.chain(sentinels).collect::<Vec<_>>().join("\n"))
    }
}

fn is_up(server: &Server) -> bool {
    server.pid().is_some() && !server.is_paused()
}

fn replicate(node: &Server, primary: u16) -> Result<()> {
    node.command(&["REPLICAOF", "127.0.0.1", &primary.to_string()]).map(drop)
}

/// One field of what a Sentinel knows about the primary.
fn fact(sentinel: &Server, field: &str) -> Option<String> {
    let reply = sentinel.command(&["SENTINEL", "MASTER", NAME]).ok()?;
    let fields = reply.as_list()?;
    let place = fields.iter().position(|it| it.as_text() == Some(field))?;
    fields.get(place + 1)?.as_text().map(str::to_owned)
}

/// What a node says it is.
#[derive(Debug)]
struct Role {
    primary: bool,
    replicas: usize,
    /// Whose replica it is, with a connection that stands.
    follows: Option<u16>,
}

fn role(node: &Server) -> Option<Role> {
    let reply = node.command(&["ROLE"]).ok()?;
    let parts = reply.as_list()?;
    let primary = parts.first()?.as_text()? == "master";
    let connected = parts.get(3).and_then(Reply::as_text) == Some("connected");
    let port = parts.get(2).and_then(Reply::as_int).and_then(|port| u16::try_from(port).ok());
    let replicas = if primary { parts.get(2)?.as_list()?.len() } else { 0 };
    Some(Role { primary, replicas, follows: port.filter(|_| !primary && connected) })
}

//! A real cluster of one's own: three primaries with a replica each, whose slots can be moved step by step.
//!
//! It is put together by plain commands, so that any server program will do.

use std::thread;
use std::time::{Duration, Instant};

use crate::{Builder, Error, Reply, Result, Server};

/// Primaries, and as many replicas.
const PRIMARIES: usize = 3;

const SLOTS: usize = 16_384;

/// How long a node may be silent before the others replace it, in milliseconds.
const NODE_TIMEOUT: &str = "800";

/// A cluster that has not settled after this long will not.
const SETTLED_WITHIN: Duration = Duration::from_secs(30);

const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A running cluster. Dropping it kills its nodes.
///
/// ```no_run
/// # fn main() -> distlock_testkit::Result<()> {
/// use distlock_testkit::Cluster;
///
/// let cluster = Cluster::spawn()?;
/// cluster.command("k", &["SET", "k", "v"])?;
/// cluster.primary_of("k")?.kill()?;
/// cluster.settle()?; // its replica has taken over
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "the nodes are killed when this is dropped"]
pub struct Cluster {
    nodes: Vec<Server>,
}

impl Cluster {
    /// Starts six nodes and waits until they are a cluster, which takes some seconds.
    ///
    /// # Errors
    ///
    /// As [`Builder::spawn`].
    pub fn spawn() -> Result<Self> {
        Self::spawn_with(|node| node)
    }

    /// The same with other settings for each node.
    ///
    /// # Errors
    ///
    /// As [`Builder::spawn`].
    pub fn spawn_with(settings: impl Fn(Builder) -> Builder) -> Result<Self> {
        let node = || {
            let node = Server::builder().in_cluster().setting("cluster-node-timeout", NODE_TIMEOUT);
            // Replicas are not lent to other primaries, and copy theirs at once.
            let node = node.setting("cluster-migration-barrier", "10").setting("repl-diskless-sync-delay", "0");
            settings(node.setting("repl-ping-replica-period", "1")).spawn()
        };
        let cluster = Self { nodes: (0..PRIMARIES * 2).map(|_| node()).collect::<Result<_>>()? };
        cluster.introduce()?;
        cluster.settle()?;
        Ok(cluster)
    }

    /// Makes a cluster of nodes that do not know each other.
    fn introduce(&self) -> Result<()> {
        let [first, others @ ..] = self.nodes.as_slice() else { return Ok(()) };
        for (epoch, node) in self.nodes.iter().enumerate() {
            // Else two primaries could have the same one, and it would take them a while to find out.
            node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(epoch + 1).to_string()])?;
        }
        for other in others {
            first.command(&["CLUSTER", "MEET", "127.0.0.1", &other.port_among_nodes().to_string()])?;
        }
        for (place, primary) in self.nodes[..PRIMARIES].iter().enumerate() {
            let slots: Vec<String> =
                (0..SLOTS).filter(|slot| slot * PRIMARIES / SLOTS == place).map(|slot| slot.to_string()).collect();
            let command: Vec<&str> =
                ["CLUSTER", "ADDSLOTS"].into_iter().chain(slots.iter().map(String::as_str)).collect();
            primary.command(&command)?;
        }
        self.wait("the nodes meet", || {
            let all = format!("cluster_known_nodes:{}", self.nodes.len());
            Ok(self.nodes.iter().all(|node| info(node, "CLUSTER").is_ok_and(|info| info.contains(&all))))
        })?;
        for (primary, replica) in self.nodes[..PRIMARIES].iter().zip(&self.nodes[PRIMARIES..]) {
            let id = id(primary)?;
            // Refused while the node has not heard of the other's slots.
            self.wait("a node becomes a replica", || Ok(replica.command(&["CLUSTER", "REPLICATE", &id]).is_ok()))?;
        }
        Ok(())
    }

    /// Waits until all nodes that run agree who serves what, serve all slots, and replicas are up to date.
    ///
    /// # Errors
    ///
    /// [`Error::NotReady`] with what a node says after half a minute.
    pub fn settle(&self) -> Result<()> {
        self.wait("the cluster settles", || {
            let mut maps = Vec::new();
            for node in self.running() {
                let (Ok(state), Ok(role)) = (info(node, "CLUSTER"), node.command(&["INFO", "replication"])) else {
                    return Ok(false);
                };
                let role = role.as_text().unwrap_or_default();
                if !state.contains("cluster_state:ok") || role.contains("master_link_status:down") {
                    return Ok(false);
                }
                // A node that is a primary without slots has not been told of its new place yet.
                let serves = self.primaries_as_seen_by(node)?.contains(&node.port());
                if serves != role.contains("role:master") {
                    return Ok(false);
                }
                maps.push(self.map_as_seen_by(node)?);
            }
            Ok(maps.windows(2).all(|pair| pair[0] == pair[1]) && maps.first().is_some_and(|map| covers_all(map)))
        })
    }

    /// How clients reach it, as in `redis+cluster://127.0.0.1:20123,127.0.0.1:20124`.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        format!("redis+cluster://{}", hosts.join(","))
    }

    /// How clients reach it encrypted, as in `rediss+cluster://127.0.0.1:20124,127.0.0.1:20126`, when its nodes have
    /// certificates.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls_url(&self) -> Option<String> {
        let urls: Option<Vec<String>> = self.nodes.iter().map(Server::tls_url).collect();
        let hosts = urls?.iter().map(|url| url.trim_start_matches("rediss://").to_owned()).collect::<Vec<_>>();
        Some(format!("rediss+cluster://{}", hosts.join(",")))
    }

    /// All nodes, also those that are killed.
    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    /// The slot that a key is in.
    ///
    /// # Errors
    ///
    /// As [`Server::command`].
    pub fn slot_of(&self, key: &str) -> Result<u16> {
        let slot = self.any()?.command(&["CLUSTER", "KEYSLOT", key])?.as_int();
        slot.and_then(|slot| u16::try_from(slot).ok()).ok_or_else(|| Error::Protocol("no slot".to_owned()))
    }

    /// The node that serves a key, as another one sees it.
    ///
    /// # Errors
    ///
    /// As [`Server::command`].
    pub fn primary_of(&self, key: &str) -> Result<&Server> {
        self.serving(key, 0)
    }

    /// The replica of the node that serves a key.
    ///
    /// # Errors
    ///
    /// As [`Server::command`]; also when there is none that works.
    pub fn replica_of(&self, key: &str) -> Result<&Server> {
        self.serving(key, 1)
    }

    /// A primary that does not serve the key.
    ///
    /// # Errors
    ///
    /// As [`Server::command`].
    pub fn other_primary(&self, key: &str) -> Result<&Server> {
        let own = self.primary_of(key)?.port();
        let primaries = self.primaries_as_seen_by(self.any()?)?;
        let other = self.running().find(|node| node.port() != own && primaries.contains(&node.port()));
        other.ok_or_else(|| Error::Protocol("no other primary".to_owned()))
    }

    /// Runs one command on the node that serves `key`.
    ///
    /// # Errors
    ///
    /// As [`Server::command`].
    pub fn command(&self, key: &str, parts: &[&str]) -> Result<Reply> {
        self.primary_of(key)?.command(parts)
    }

    /// Begins to move the slot of a key to another primary: from now on each of the two knows of it. Keys move with
    /// [`Migration::move_key`], the slot with [`Migration::finish`].
    ///
    /// # Errors
    ///
    /// As [`Server::command`].
    pub fn migrate<'a>(&'a self, key: &str, to: &'a Server) -> Result<Migration<'a>> {
        let (slot, from) = (self.slot_of(key)?.to_string(), self.primary_of(key)?);
        to.command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(from)?])?;
        from.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(to)?])?;
        Ok(Migration { cluster: self, slot, from, to })
    }

    fn serving(&self, key: &str, place: usize) -> Result<&Server> {
        let slot = usize::from(self.slot_of(key)?);
        let map = self.map_as_seen_by(self.any()?)?;
        let share = map.iter().find(|(slots, _)| slots.contains(&slot));
        let port = share.and_then(|(_, ports)| ports.get(place));
        let node = self.nodes.iter().find(|node| Some(&node.port()) == port);
        node.ok_or_else(|| Error::Protocol(format!("nobody serves slot {slot}")))
    }

    fn running(&self) -> impl Iterator<Item = &Server> {
        self.nodes.iter().filter(|node| node.pid().is_some() && !node.is_paused())
    }

    fn any(&self) -> Result<&Server> {
        self.running().next().ok_or_else(|| Error::NotReady { log: "no node runs".to_owned() })
    }

    fn primaries_as_seen_by(&self, node: &Server) -> Result<Vec<u16>> {
        Ok(self.map_as_seen_by(node)?.iter().filter_map(|(_, ports)| ports.first()).copied().collect())
    }

    /// Slots, and the ports of those who have them, the primary first.
    fn map_as_seen_by(&self, node: &Server) -> Result<Vec<(std::ops::RangeInclusive<usize>, Vec<u16>)>> {
        let answer = node.command(&["CLUSTER", "SLOTS"])?;
        let read = |share: &Reply| {
            let parts = share.as_list()?;
            let number = |reply: &Reply| usize::try_from(reply.as_int()?).ok();
            let port = |node: &Reply| u16::try_from(node.as_list()?.get(1)?.as_int()?).ok();
            let mut ports: Vec<u16> = parts.iter().skip(2).filter_map(port).collect();
            ports.get_mut(1..)?.sort_unstable();
            Some((number(parts.first()?)?..=number(parts.get(1)?)?, ports))
        };
        let mut map: Vec<_> = answer.as_list().unwrap_or_default().iter().filter_map(read).collect();
        map.sort_by_key(|(slots, _)| *slots.start());
        Ok(map)
    }

    fn wait(&self, what: &str, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
        let until = Instant::now() + SETTLED_WITHIN;
        while !done()? {
            if Instant::now() > until {
                let said: Vec<_> = self.running().map(|node| node.command(&["CLUSTER", "NODES"])).collect();
                return Err(Error::NotReady { log: format!("{what}: not within {SETTLED_WITHIN:?}; {said:?}") });
            }
            thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }
}

/// A slot on its way from one node to another.
#[derive(Debug)]
#[must_use = "the slot stays on its way until `finish`"]
pub struct Migration<'a> {
    cluster: &'a Cluster,
    slot: String,
    from: &'a Server,
    to: &'a Server,
}

impl Migration<'_> {
    /// Moves one key.
    ///
    /// # Errors
    ///
    /// As [`Server::command`].
    pub fn move_key(&self, key: &str) -> Result<()> {
        let port = self.to.port().to_string();
        self.from.command(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]).map(drop)
    }

    /// Moves the keys that are left, then the slot itself, and waits until everybody knows.
    ///
    /// # Errors
    ///
    /// As [`Server::command`].
    pub fn finish(self) -> Result<()> {
        let id = id(self.to)?;
        loop {
            let keys = self.from.command(&["CLUSTER", "GETKEYSINSLOT", &self.slot, "100"])?;
            let keys: Vec<&str> = keys.as_list().unwrap_or_default().iter().filter_map(Reply::as_text).collect();
            if keys.is_empty() {
                break;
            }
            keys.into_iter().try_for_each(|key| self.move_key(key))?;
        }
        // The new one first: then there is no moment at which nobody serves the slot.
        for node in [self.to, self.from] {
            // A key that came in the meantime is refused here.
            node.command(&["CLUSTER", "SETSLOT", &self.slot, "NODE", &id])?;
        }
        self.cluster.settle()
    }
}

fn info(node: &Server, what: &str) -> Result<String> {
    let info = node.command(&[what, "INFO"])?;
    Ok(info.as_text().unwrap_or_default().to_owned())
}

fn id(node: &Server) -> Result<String> {
    let id = node.command(&["CLUSTER", "MYID"])?;
    id.as_text().map(str::to_owned).ok_or_else(|| Error::Protocol("no node id".to_owned()))
}

fn covers_all(map: &[(std::ops::RangeInclusive<usize>, Vec<u16>)]) -> bool {
    map.iter().map(|(slots, _)| slots.clone().count()).sum::<usize>() == SLOTS
}

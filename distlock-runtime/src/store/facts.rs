//! What a store saw of its servers when it was asked to look. Judged in `doctor`; nothing here is needed for locking.

use std::sync::Arc;
use std::time::Duration;

use super::StoreError;
use crate::clock::{Clock, Moment};
use crate::key::Names;

/// What to look at.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    pub(crate) clock: Clock,
    /// A key of the namespace that nobody uses, and one with a hash tag of its own.
    pub(crate) plain: Arc<Names>,
    pub(crate) tagged: Arc<Names>,
    /// The same of each other namespace in which the program declares locks.
    pub(crate) others: Arc<[(Arc<Names>, Arc<Names>)]>,
    /// The key that says since when a server remembers, where servers abstain that do not.
    pub(crate) epoch: Option<Arc<str>>,
    /// Takes a second look at the clock, and asks whether wake-ups come.
    pub(crate) thorough: bool,
    pub(crate) wanted: Wanted,
}

/// What the manager wants of its servers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// Share of the ttl given up for clocks that run at different rates.
    pub(crate) drift: f64,
    /// Whether grants wait for replicas.
    pub(crate) replica_acks: Option<usize>,
    /// How long a server abstains that has lost its memory.
    pub(crate) quarantine: Option<Duration>,
    /// Whether they are the nodes of a cluster.
    pub(crate) cluster: bool,
}

/// One server.
#[derive(Debug)]
pub(crate) struct NodeFacts {
    /// Without credentials; with the database, if it is not 0.
    pub(crate) address: String,
    /// Of one of several that decide by majority: whether it abstains after it has lost its memory.
    pub(crate) quarantine: Option<bool>,
    /// As far as it answered.
    pub(crate) seen: Result<Seen, StoreError>,
}

#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// `None` where it is not told.
    pub(crate) info: Option<Info>,
    /// What this user may not do, or the server does not know.
    pub(crate) refused: Vec<Refused>,
    /// The first reading of this server's clock, from an earlier look if there was one.
    pub(crate) first: Option<Reading>,
    /// The readings of this look.
    pub(crate) clock: Vec<Reading>,
    /// `None` where it was not asked or not answered.
    pub(crate) memory: Option<Memory>,
}

/// Whether a server remembers, of several that decide by majority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    /// It does not know since when: it is new, or has lost everything.
    Lost,
    /// By its clock, since 1970.
    Since(Duration),
}

/// What a server says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Info {
    /// Different in each start of each server.
    pub(crate) run_id: String,
    /// Of Redis, or the one that Valkey is compatible with.
    pub(crate) version: String,
    pub(crate) max_memory: u64,
    pub(crate) eviction: String,
    pub(crate) is_replica: bool,
    pub(crate) replicas: u64,
    pub(crate) is_cluster: bool,
    pub(crate) is_sentinel: bool,
    pub(crate) has_append_only_file: bool,
}

impl Info {
    /// Reads the answer to `INFO`. What is not in it counts as harmless.
    pub(crate) fn read(text: &str) -> Self {
        let field = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            value.unwrap_or_default().trim()
        };
        let number = |name: &str| field(name).parse().unwrap_or_default();
        Self {
            run_id: field("run_id").to_owned(),
            version: field("redis_version").to_owned(),
            max_memory: number("maxmemory"),
            eviction: field("maxmemory_policy").to_owned(),
            is_replica: field("role") == "slave",
            replicas: number("connected_slaves"),
            is_cluster: field("cluster_enabled") == "1",
            // As Redis calls it, and as Valkey does.
            is_sentinel: [field("redis_mode"), field("server_mode")].contains(&"sentinel"),
            has_append_only_file: field("aof_enabled") == "1",
        }
    }
}

/// What a user's rule does not allow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Command(&'static str),
    /// Keys of this pattern.
    Keys(String),
    /// Channels of this pattern.
    Channels(&'static str),
    /// The server, or something before it, does not have the command at all.
    Unknown(&'static str),
    /// The rest cannot be asked for without it.
    Info,
    /// `INFO` as well, of one that is to abstain after a start.
    Run,
    /// No writes are accepted now, whoever sends them; the code says why.
    Writes(Reason),
}

/// Why a server accepts no writes now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    OutOfMemory,
    TooFewReplicas,
    CannotSave,
}

/// What a server's clock showed at a moment of ours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    /// When the question left.
    pub(crate) asked_at: Moment,
    /// How long the answer took; it was read at some moment of this time.
    pub(crate) took: Duration,
    /// Since 1970.
    pub(crate) shown: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_to_info_is_read_and_an_empty_one_is_harmless() {
        let text = "# Server\r\nredis_version:7.0.15\r\nrun_id:abc\r\nmaxmemory:100\r\nmaxmemory_human:100B\r\nmaxmemory_policy:allkeys-lru\r\nrole:slave\r\nconnected_slaves:2\r\ncluster_enabled:1\r\naof_enabled:1\r\n";
        let info = Info::read(text);
        let expected = Info {
            run_id: "abc".to_owned(),
            version: "7.0.15".to_owned(),
            max_memory: 100,
            eviction: "allkeys-lru".to_owned(),
            is_replica: true,
            replicas: 2,
            is_cluster: true,
            is_sentinel: false,
            has_append_only_file: true,
        };
        assert_eq!(info, expected);
        assert_eq!(Info::read(""), Info::default());
        assert!(Info::read("redis_mode:sentinel\r\n").is_sentinel);
        assert!(Info::read("server_mode:sentinel\r\n").is_sentinel);
    }
}

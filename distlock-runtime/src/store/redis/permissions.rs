//! What locking does on a server, in one list: what a user's rule must allow, and how each of it is tried without harm.

use redis::{Cmd, Pipeline};

use super::connection::Answer;
use crate::key::LockName;
use crate::store::facts::{Reason, Refused, Wanted};

/// Every command that locking sends or runs in a script. The login (`AUTH`, `HELLO`) needs no permission.
pub(super) const COMMANDS: [&str; 18] = [
    "EVAL",
    "EVALSHA",
    "GET",
    "SET",
    "DEL",
    "EXISTS",
    "PTTL",
    "PEXPIRE",
    "TIME",
    "ZADD",
    "ZREM",
    "ZRANGE",
    "ZSCORE",
    "HSET",
    "HGET",
    "HDEL",
    "PUBLISH",
    "SUBSCRIBE",
];

/// What a Cluster takes beside that. Its wake-ups are not published to all nodes.
#[cfg(feature = "cluster")]
pub(super) const IN_CLUSTER: [&str; 4] = ["CLUSTER SLOTS", "ASKING", "SPUBLISH", "SSUBSCRIBE"];

/// What `replica_acks` takes beside that.
const WITH_ACKS: &str = "WAIT";

/// The channels on which waiters are told of their turn.
pub(super) const CHANNELS: &str = "distlock:turn:*";

/// One thing that is tried.
pub(super) struct Probe {
    /// One of those above.
    command: &'static str,
    /// The pattern of its key, if it has one.
    pattern: Option<String>,
    sent: Cmd,
}

/// Everything but what leaves something behind. The names are of a key that nobody uses, with their patterns; nothing is
/// written: what would write is told to write only where something is already.
pub(super) fn probes(
    namespace: &str,
    plain: &LockName,
    tagged: &LockName,
    channel: &str,
    wanted: Wanted,
) -> Vec<Probe> {
    let wire = (plain.wire.to_string(), format!("{namespace}:*"));
    let queue = (plain.queue().to_string(), format!("{{{namespace}:*"));
    let waiters = (plain.waiters().to_string(), queue.1.clone());
    let tagged = (tagged.queue().to_string(), format!("{{*}}:{namespace}:*"));
    let counters = if wanted.cluster { tagged.1.clone() } else { format!("{{{namespace}}}:*") };
    let fence = (plain.fence.to_string(), counters);
    let mut probes = vec![
        probe("EVAL", None, &["return 1", "0"]),
        probe("EVALSHA", None, &["0000000000000000000000000000000000000000", "0"]),
        probe("GET", Some(&wire), &[]),
        probe("SET", Some(&wire), &["", "XX", "PX", "1"]),
        probe("DEL", Some(&wire), &[]),
        probe("EXISTS", Some(&wire), &[]),
        probe("PTTL", Some(&wire), &[]),
        probe("PEXPIRE", Some(&wire), &["1"]),
        probe("TIME", None, &[]),
        probe("ZADD", Some(&queue), &["XX", "1", ""]),
        probe("ZREM", Some(&queue), &[""]),
        probe("ZRANGE", Some(&queue), &["0", "0"]),
        probe("ZSCORE", Some(&queue), &[""]),
        probe("HGET", Some(&waiters), &[""]),
        probe("HDEL", Some(&waiters), &[""]),
        // The counter may be there already: read, and asked for what no text can do.
        probe("GET", Some(&fence), &[]),
        probe("ZADD", Some(&fence), &["XX", "1", ""]),
    ];
    for key in [&queue, &tagged] {
        probes.push(probe("GET", Some(key), &[]));
        probes.push(probe("PEXPIRE", Some(key), &["1"]));
    }
    if wanted.replica_acks.is_some() {
        probes.push(probe(WITH_ACKS, None, &["0", "1"]));
    }
    if wanted.cluster {
        probes.extend(probes_in_cluster(channel));
    } else {
        probes.push(probe("PUBLISH", None, &[channel, ""]));
    }
    probes
}

/// A node looks at the user's rule before it looks whether a name is its own, so any node can be asked about any name.
fn probes_in_cluster(channel: &str) -> [Probe; 4] {
    [
        Probe { sent: redis::cmd("CLUSTER").arg("SLOTS").to_owned(), ..probe("CLUSTER SLOTS", None, &[]) },
        probe("ASKING", None, &[]),
        probe("SPUBLISH", None, &[channel, ""]),
        // Channels of two slots, so that it is refused to whoever may do it: this connection must not listen.
        probe("SSUBSCRIBE", None, &[&*format!("{channel}{{0}}"), &*format!("{channel}{{1}}")]),
    ]
}

/// What cannot be tried without writing: the hash is deleted, or else ends by itself.
pub(super) fn writing_probe(plain: &LockName, can_delete: bool) -> (Probe, Cmd) {
    let waiters = (plain.waiters().to_string(), String::new());
    let mut undo = redis::cmd(if can_delete { "DEL" } else { "PEXPIRE" });
    undo.arg(&waiters.0);
    if !can_delete {
        undo.arg(1);
    }
    (probe("HSET", Some(&waiters), &["doctor", ""]), undo)
}

fn probe(command: &'static str, key: Option<&(String, String)>, arguments: &[&str]) -> Probe {
    let mut sent = redis::cmd(command);
    if let Some((key, _)) = key {
        sent.arg(key);
    }
    sent.arg(arguments);
    Probe { command, pattern: key.map(|(_, pattern)| pattern.clone()), sent }
}

impl Probe {
    pub(super) fn add_to(&self, pipeline: &mut Pipeline) {
        pipeline.add_command(self.sent.clone());
    }

    /// What its answer says. Anything but a refusal means that it may be done, whatever became of it.
    pub(super) fn refused(&self, answer: &Answer) -> Option<Refused> {
        refusal(answer, self.command, self.pattern.as_deref())
    }
}

/// Reads a refusal: servers before 7.0 say it in other words than later ones.
pub(super) fn refusal(answer: &Answer, command: &'static str, pattern: Option<&str>) -> Option<Refused> {
    let Err(error) = answer else { return None };
    let details = error.detail().unwrap_or_default();
    if error.code() == Some("NOPERM") {
        return Some(if details.contains("to run the") {
            Refused::Command(command)
        } else if details.contains("channel") {
            Refused::Channels(CHANNELS)
        } else {
            Refused::Keys(pattern.unwrap_or("*").to_owned())
        });
    }
    match error.code() {
        Some("OOM") => Some(Refused::Writes(Reason::OutOfMemory)),
        Some("NOREPLICAS") => Some(Refused::Writes(Reason::TooFewReplicas)),
        Some("MISCONF") => Some(Refused::Writes(Reason::CannotSave)),
        Some("ERR") if details.starts_with("unknown command") => Some(Refused::Unknown(command)),
        _ => None,
    }
}

/// The commands, for a text.
pub(super) fn commands() -> String {
    let mut text = COMMANDS.join(", ");
    text.push_str(&format!("; for `replica_acks` also {WITH_ACKS}"));
    #[cfg(feature = "cluster")]
    text.push_str(&format!("; in a Cluster also {}", IN_CLUSTER.join(", ")));
    text
}

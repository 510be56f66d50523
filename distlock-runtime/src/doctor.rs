//! Looking at the lock servers for what will hurt: each finding says what it is and what to do.
//!
//! A store tells what it saw (`store::facts`); here that is judged. Facts of several servers are judged together as well
//! (`several`), for some faults are only to be seen between them.

mod several;

use std::fmt;
use std::time::Duration;

use crate::error::LockError;
use crate::store::facts::{Info, NodeFacts, Reading, Reason, Refused, Seen, Wanted};
use crate::store::{StoreError, StoreErrorKind};

/// How far a clock may have moved beside ours, beyond what drift and the network explain, before it counts as a jump.
const JUMP: Duration = Duration::from_millis(100);

/// Something about a lock server that will hurt, or may. Given by [`LockManager::doctor`](crate::LockManager::doctor).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    kind: FindingKind,
    severity: Severity,
    node: String,
    what: String,
    fix: String,
}

/// What a [`Finding`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FindingKind {
    /// The user may not do something that locking needs.
    Permission,
    /// Scripts are refused or not known, without which there are no locks.
    Scripts,
    /// Waiters cannot be told of their turn, and poll.
    WakeUps,
    /// The server deletes keys to make room, those of held locks too.
    Eviction,
    /// A restart loses the keys of held locks.
    Amnesia,
    /// The server is a read-only replica.
    Replica,
    /// There are replicas that a failover may promote without the newest locks.
    UnacknowledgedReplicas,
    /// The server is part of a cluster and the URL is not that of one, or the other way round.
    ClusterMismatch,
    /// Two of several addresses lead to the same server.
    SameServer,
    /// The clocks of two servers differ.
    ClocksApart,
    /// The server's clock runs at another rate than this machine's.
    ClockRate,
    /// The server's clock has been set.
    ClockJump,
    /// The server is too old.
    Version,
    /// A server of Redlock has lost its memory, or is new, and does not vote yet.
    Quarantine,
    /// Redlock has an even number of servers.
    EvenServers,
    /// The address is that of a Sentinel, which keeps no locks.
    Sentinel,
    /// The server accepts no writes now: it is out of memory, cannot save, or misses replicas that it wants.
    WritesRefused,
    /// Fewer replicas are connected than must acknowledge each lock.
    TooFewReplicas,
    /// One of several servers does not answer.
    Unreachable,
    /// The server does not tell enough to look at everything.
    CannotLook,
}

/// How much a [`Finding`] matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Severity {
    /// Good to know; it may be just as it is meant.
    Note,
    /// Locks work, and will be worse or weaker than they could be.
    Warning,
    /// Locks do not work, or do not exclude.
    Problem,
}

impl Finding {
    fn new(kind: FindingKind, severity: Severity, node: &str, what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { kind, severity, node: node.to_owned(), what: what.into(), fix: fix.into() }
    }

    /// What it is about.
    pub fn kind(&self) -> FindingKind {
        self.kind
    }

    /// How much it matters.
    pub fn severity(&self) -> Severity {
        self.severity
    }

    /// The server's address, without credentials; with the database, if that is not 0. Of something about all servers, all of
    /// their addresses.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// What was found.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// What to do about it.
    pub fn fix(&self) -> &str {
        &self.fix
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}; {}", self.severity, self.node, self.what, self.fix)
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Problem => "problem",
        })
    }
}

/// Judges what was seen of all servers of a manager, worst first. An error only where none could be asked.
pub(crate) fn judge(nodes: &[NodeFacts], wanted: Wanted) -> Result<Vec<Finding>, LockError> {
    let mut findings = Vec::new();
    for node in nodes {
        match &node.seen {
            Ok(seen) => judge_one(node, seen, wanted, &mut findings),
            Err(error) => findings.push(judge_silence(&node.address, error)),
        }
    }
    if nodes.iter().all(|node| node.seen.is_err()) {
        let mut errors = nodes.iter().filter_map(|node| node.seen.as_ref().err());
        // What will not end by itself says more.
        let worst = errors.clone().find(|error| !error.kind.is_outage()).or_else(|| errors.next());
        return worst.map_or(Ok(Vec::new()), |error| Err(error.clone().into()));
    }
    several::judge(nodes, wanted, &mut findings);
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    Ok(findings)
}

/// Of one that could not be asked, among others that could.
fn judge_silence(node: &str, error: &StoreError) -> Finding {
    let text = error.text.strip_prefix(node).and_then(|text| text.strip_prefix(": ")).unwrap_or(&error.text);
    if error.kind.is_outage() {
        let what = format!("it does not answer ({text})");
        let fix = "bring it back, for the others must do without it";
        return Finding::new(FindingKind::Unreachable, Severity::Warning, node, what, fix);
    }
    let is_refusal = error.kind == StoreErrorKind::Permission;
    let kind = if is_refusal { FindingKind::Permission } else { FindingKind::Unreachable };
    // Errors say what to do behind a semicolon.
    let (what, fix) = text.split_once("; ").unwrap_or((text, "see to its URL"));
    Finding::new(kind, Severity::Problem, node, what, fix)
}

fn judge_one(node: &NodeFacts, seen: &Seen, wanted: Wanted, findings: &mut Vec<Finding>) {
    let address = &node.address;
    if seen.info.as_ref().is_some_and(|info| info.is_sentinel) {
        // It knows next to no command, which is not to be told one by one.
        let fix = "write `redis+sentinel://host:port/name`, with the name of the primary";
        let what = "it is a Sentinel, which keeps no locks";
        findings.push(Finding::new(FindingKind::Sentinel, Severity::Problem, address, what, fix));
        return;
    }
    findings.extend(seen.refused.iter().map(|refused| judge_refusal(address, refused)));
    if let Some(info) = &seen.info {
        judge_info(address, info, wanted, findings);
        judge_replicas(address, info, node.quarantine.is_some(), wanted, findings);
        judge_memory(address, info, node.quarantine, findings);
    }
    judge_clock(address, seen, wanted.drift, findings);
}

fn judge_refusal(node: &str, refused: &Refused) -> Finding {
    use FindingKind::{CannotLook, Permission, Scripts, WakeUps, WritesRefused};
    use Severity::{Note, Problem, Warning};
    let by_command = |command: &str, else_kind| match command {
        "EVAL" | "EVALSHA" => (Scripts, Problem),
        // Who cannot be told looks by itself.
        "PUBLISH" | "SUBSCRIBE" | "SPUBLISH" | "SSUBSCRIBE" => (WakeUps, Warning),
        _ => (else_kind, Problem),
    };
    match refused {
        Refused::Command(command) => {
            let (kind, severity) = by_command(command, Permission);
            let what = format!("the user may not run `{command}`");
            let word = command.to_ascii_lowercase().replace(' ', "|");
            Finding::new(kind, severity, node, what, format!("add `+{word}` to its rule"))
        }
        Refused::Keys(pattern) => {
            let what = format!("the user may not use the keys `{pattern}`");
            Finding::new(Permission, Problem, node, what, format!("add `~{pattern}` to its rule"))
        }
        Refused::Channels(pattern) => {
            let what = format!("the user may not use the channels `{pattern}`, so waiters poll");
            Finding::new(WakeUps, Warning, node, what, format!("add `&{pattern}` to its rule"))
        }
        Refused::Unknown(command) => {
            let (kind, severity) = by_command(command, Permission);
            let what = format!("`{command}` is not known there");
            let fix = "use a Redis or Valkey server that has not renamed it, without a proxy that leaves it out";
            Finding::new(kind, severity, node, what, fix)
        }
        Refused::Writes(reason) => {
            let (what, fix) = match reason {
                Reason::OutOfMemory => {
                    ("it is out of memory, so no lock can be taken", "free some, or raise `maxmemory`")
                }
                Reason::TooFewReplicas => (
                    "it has fewer replicas than its `min-replicas-to-write`, so no lock can be taken",
                    "connect them, or lower `min-replicas-to-write`",
                ),
                Reason::CannotSave => (
                    "it cannot save to its disk and refuses writes (MISCONF), so no lock can be taken",
                    "make room on its disk; its log says what failed",
                ),
            };
            Finding::new(WritesRefused, Problem, node, what, fix)
        }
        Refused::Run => Finding::new(
            Permission,
            Warning,
            node,
            "the user may not run `INFO`, so a server that comes back with older data votes at once",
            "add `+info` to its rule",
        ),
        Refused::Info => Finding::new(
            CannotLook,
            Note,
            node,
            "`INFO` is refused, so eviction, persistence, replicas and version are not looked at",
            "add `+info` to the user's rule, or look yourself",
        ),
    }
}

fn judge_info(node: &str, info: &Info, wanted: Wanted, findings: &mut Vec<Finding>) {
    use FindingKind::{ClusterMismatch, Eviction, Replica, Version};
    use Severity::Problem;
    let mut add =
        |kind, severity, what: String, fix: &str| findings.push(Finding::new(kind, severity, node, what, fix));
    if info.max_memory > 0 && !matches!(info.eviction.as_str(), "noeviction" | "") {
        add(
            Eviction,
            Problem,
            format!("with `maxmemory-policy {}` it deletes the keys of held locks when memory is short", info.eviction),
            "set `maxmemory-policy noeviction`, or use a server of its own for locks",
        );
    }
    // A cluster tells by itself who is whose replica.
    if info.is_replica && !wanted.cluster {
        add(Replica, Problem, "it is a read-only replica".to_owned(), "connect to its primary");
    }
    if info.is_cluster != wanted.cluster {
        let (what, fix) = if info.is_cluster {
            ("it is part of a cluster, and answers for some keys only", "write `redis+cluster://`")
        } else {
            ("it is not part of a cluster", "write `redis://`")
        };
        add(ClusterMismatch, Problem, what.to_owned(), fix);
    }
    if is_older_than(&info.version, (6, 2)) {
        add(Version, Problem, format!("its version is {}", info.version), "use Redis 6.2 or later, or Valkey");
    }
}

/// What a failover does to held locks. Several that decide by majority cannot have their replicas acknowledge them.
fn judge_replicas(node: &str, info: &Info, is_one_of_several: bool, wanted: Wanted, findings: &mut Vec<Finding>) {
    let connected = usize::try_from(info.replicas).unwrap_or(usize::MAX);
    if let Some(least) = wanted.replica_acks {
        if connected < least && !info.is_replica {
            let what =
                format!("`replica_acks` wants {least} replicas and {connected} are connected, so there are no locks");
            let fix = "connect more of them, or lower `replica_acks`";
            findings.push(Finding::new(FindingKind::TooFewReplicas, Severity::Problem, node, what, fix));
        }
        return;
    }
    let fix = if is_one_of_several {
        "name independent servers without replicas, for one that fails over forgets what it granted"
    } else if info.is_cluster && !wanted.cluster {
        "write `redis+cluster://`, and let the resource check fencing tokens"
    } else {
        "have grants acknowledged with `Builder::replica_acks`, and let the resource check fencing tokens"
    };
    let what = match connected {
        0 => return,
        1 => "its 1 replica may be promoted without the newest locks".to_owned(),
        _ => format!("each of its {connected} replicas may be promoted without the newest locks"),
    };
    findings.push(Finding::new(FindingKind::UnacknowledgedReplicas, Severity::Warning, node, what, fix));
}

/// What a restart does to held locks. Several servers that decide by majority count on it that most of them remember.
fn judge_memory(node: &str, info: &Info, quarantine: Option<bool>, findings: &mut Vec<Finding>) {
    let (severity, fix) = match quarantine {
        Some(true) => return,
        Some(false) => {
            (Severity::Warning, "give `Builder::quarantine(true)`, or set `appendonly yes` and `appendfsync always`")
        }
        None => (Severity::Note, "set `appendonly yes` if that matters, or let the resource check fencing tokens"),
    };
    if !info.has_append_only_file && !info.is_replica {
        let what = "it keeps no append-only file, so a restart may forget held locks";
        findings.push(Finding::new(FindingKind::Amnesia, severity, node, what, fix));
    }
}

/// A version that cannot be read is not called old.
fn is_older_than(version: &str, least: (u32, u32)) -> bool {
    let mut parts = version.split('.').map(str::parse::<u32>);
    matches!((parts.next(), parts.next()), (Some(Ok(major)), Some(Ok(minor))) if (major, minor) < least)
}

fn judge_clock(node: &str, seen: &Seen, drift: f64, findings: &mut Vec<Finding>) {
    let told_from = drift / 2.0;
    if let (Some(first), Some(last)) = (seen.clock.first(), seen.clock.last())
        && let Some(rate) = rate(first, last)
        && rate.abs() > told_from
    {
        findings.push(Finding::new(
            FindingKind::ClockRate,
            Severity::Warning,
            node,
            format!("its clock runs {:+.0} ppm beside this machine's", rate * 1e6),
            format!("see to the clocks, or give `Builder::drift` more than {drift}; 0.1 covers clocks that are slewed"),
        ));
    } else if let (Some(first), Some(last)) = (&seen.first, seen.clock.last())
        && let (moved, unsure) = moved(first, last)
        && moved.abs() > unsure + told_from * last.asked_at.since(first.asked_at).as_secs_f64() + JUMP.as_secs_f64()
    {
        findings.push(Finding::new(
            FindingKind::ClockJump,
            Severity::Warning,
            node,
            format!(
                "its clock was set by {moved:+.1} s while this process ran; leases ended earlier or later by as much"
            ),
            "let its clock be slewed, not stepped; renewals and fencing tokens tell a holder what it has lost",
        ));
    }
}

/// By which share a clock is faster than ours, at the least; `None` where the network hides it.
fn rate(first: &Reading, last: &Reading) -> Option<f64> {
    let elapsed = last.asked_at.since(first.asked_at).as_secs_f64();
    let (moved, unsure) = moved(first, last);
    (elapsed > 0.0 && moved.abs() > unsure).then(|| (moved - unsure.copysign(moved)) / elapsed)
}

/// By how many seconds a clock has moved beside ours, and how far that may be wrong.
fn moved(first: &Reading, last: &Reading) -> (f64, f64) {
    let shown = last.shown.as_secs_f64() - first.shown.as_secs_f64();
    (shown - last.asked_at.since(first.asked_at).as_secs_f64(), (first.took + last.took).as_secs_f64())
}

#[cfg(test)]
mod tests;

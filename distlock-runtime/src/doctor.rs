//! Looking at the lock servers for what will hurt: each finding says what it is and what to do.
//!
//! A store tells what it saw (`store::facts`); here that is judged. Facts of several servers are judged together, for some
//! faults are only to be seen between them.

use std::fmt;
use std::time::Duration;

use crate::error::LockError;
use crate::store::facts::{Info, NodeFacts, Reading, Refused, Seen, Wanted};

/// How much two servers' clocks may differ before it is told. Fencing tokens are taken from them.
const CLOCKS_APART: Duration = Duration::from_secs(1);

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

    /// The server's address, without credentials.
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
        write!(f, "{}: {}; {}", self.node, self.what, self.fix)
    }
}

/// Judges what was seen of all servers of a manager, worst first. An error only where none could be asked.
pub(crate) fn judge(nodes: &[NodeFacts], wanted: Wanted) -> Result<Vec<Finding>, LockError> {
    let mut findings = Vec::new();
    for node in nodes {
        match &node.seen {
            Ok(seen) => judge_one(node, seen, wanted, &mut findings),
            Err(error) if nodes.iter().all(|node| node.seen.is_err()) => return Err(error.clone().into()),
            Err(error) => findings.push(Finding::new(
                FindingKind::Unreachable,
                Severity::Warning,
                &node.address,
                format!("it does not answer ({})", error.text),
                "bring it back, for the others must do without it",
            )),
        }
    }
    judge_together(nodes, &mut findings);
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    Ok(findings)
}

fn judge_one(node: &NodeFacts, seen: &Seen, wanted: Wanted, findings: &mut Vec<Finding>) {
    let address = &node.address;
    findings.extend(seen.refused.iter().map(|refused| judge_refusal(address, refused)));
    if let Some(info) = &seen.info {
        judge_info(address, info, wanted, findings);
        judge_memory(address, info, node.quarantine, findings);
    }
    judge_clock(address, seen, wanted.drift, findings);
}

fn judge_refusal(node: &str, refused: &Refused) -> Finding {
    use FindingKind::{CannotLook, Permission, Scripts, WakeUps};
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
    use FindingKind::{ClusterMismatch, Eviction, Replica, UnacknowledgedReplicas, Version};
    use Severity::{Note, Problem, Warning};
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
    if info.replicas > 0 && !wanted.replica_acks {
        let (severity, fix) = if wanted.cluster {
            (Note, "let the resource check fencing tokens; nothing else helps in a cluster")
        } else {
            (
                Warning,
                "have grants acknowledged with `Builder::replica_acks`, and let the resource check fencing tokens",
            )
        };
        let what = format!("{} of its replicas may be promoted without the newest locks", info.replicas);
        add(UnacknowledgedReplicas, severity, what, fix);
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

fn judge_together(nodes: &[NodeFacts], findings: &mut Vec<Finding>) {
    let seen: Vec<(&str, &Seen)> =
        nodes.iter().filter_map(|node| Some((&*node.address, node.seen.as_ref().ok()?))).collect();
    for (place, (address, one)) in seen.iter().enumerate() {
        for (earlier, other) in &seen[..place] {
            let run_id = |seen: &Seen| seen.info.as_ref().map(|info| info.run_id.clone()).filter(|id| !id.is_empty());
            if run_id(one).is_some() && run_id(one) == run_id(other) {
                findings.push(Finding::new(
                    FindingKind::SameServer,
                    Severity::Problem,
                    address,
                    format!("it is the same server as {earlier}, and counts twice"),
                    "give each address a server of its own",
                ));
            } else if let (Some(one), Some(other)) = (one.clock.last(), other.clock.last()) {
                let (apart, unsure) = moved(other, one);
                if apart.abs() > CLOCKS_APART.as_secs_f64() + unsure {
                    findings.push(Finding::new(
                        FindingKind::ClocksApart,
                        Severity::Warning,
                        address,
                        format!("its clock is {apart:+.1} s beside that of {earlier}"),
                        "let both follow the same time source",
                    ));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Moment;
    use crate::store::{StoreError, StoreErrorKind};

    const WANTED: Wanted = Wanted { drift: 0.01, replica_acks: false, cluster: false };

    fn healthy() -> Info {
        Info {
            run_id: "a".to_owned(),
            version: "7.0.15".to_owned(),
            eviction: "noeviction".to_owned(),
            has_append_only_file: true,
            ..Info::default()
        }
    }

    fn node(address: &str, seen: Seen) -> NodeFacts {
        NodeFacts { address: address.to_owned(), quarantine: None, seen: Ok(seen) }
    }

    fn told(info: Info) -> Seen {
        Seen { info: Some(info), ..Seen::default() }
    }

    fn kinds(nodes: &[NodeFacts]) -> Vec<FindingKind> {
        judge(nodes, WANTED).unwrap().iter().map(Finding::kind).collect()
    }

    fn reading(at_millis: u64, shown_millis: u64) -> Reading {
        Reading {
            asked_at: Moment::from_nanos(at_millis * 1_000_000),
            took: Duration::from_micros(200),
            shown: Duration::from_millis(1_000_000 + shown_millis),
        }
    }

    #[test]
    fn a_healthy_server_has_no_finding() {
        assert_eq!(kinds(&[node("a", told(healthy()))]), []);
        assert_eq!(kinds(&[node("a", Seen::default())]), []);
        assert_eq!(kinds(&[]), []);
    }

    #[test]
    fn each_fact_that_hurts_is_told() {
        type Spoil = fn(&mut Info);
        let facts: [(FindingKind, Spoil); 6] = [
            (FindingKind::Eviction, |info| (info.max_memory, info.eviction) = (1, "volatile-ttl".to_owned())),
            (FindingKind::Replica, |info| info.is_replica = true),
            (FindingKind::UnacknowledgedReplicas, |info| info.replicas = 1),
            (FindingKind::ClusterMismatch, |info| info.is_cluster = true),
            (FindingKind::Amnesia, |info| info.has_append_only_file = false),
            (FindingKind::Version, |info| info.version = "6.0.16".to_owned()),
        ];
        for (kind, spoil) in facts {
            let mut info = healthy();
            spoil(&mut info);
            let findings = judge(&[node("a", told(info))], WANTED).unwrap();
            assert_eq!(findings.iter().map(Finding::kind).collect::<Vec<_>>(), [kind]);
            assert!(!findings[0].fix().is_empty());
        }
        // A policy without a limit evicts nothing.
        let mut info = healthy();
        info.eviction = "allkeys-lru".to_owned();
        assert_eq!(kinds(&[node("a", told(info))]), []);
    }

    #[test]
    fn a_server_that_forgets_matters_more_where_a_majority_counts_on_it() {
        let severity = |quarantine| {
            let info = Info { has_append_only_file: false, ..healthy() };
            let nodes = [NodeFacts { quarantine, ..node("a", told(info)) }];
            judge(&nodes, WANTED).unwrap().first().map(Finding::severity)
        };
        assert_eq!(severity(None), Some(Severity::Note));
        assert_eq!(severity(Some(false)), Some(Severity::Warning));
        assert_eq!(severity(Some(true)), None);
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        for (version, is_old) in [("6.0.16", true), ("5.0", true), ("6.2.0", false), ("10.0.1", false), ("?", false)] {
            assert_eq!(is_older_than(version, (6, 2)), is_old, "{version}");
        }
    }

    #[test]
    fn a_clock_that_runs_fast_or_jumps_is_told_and_the_network_is_not_taken_for_it() {
        let clock =
            |first: Option<Reading>, clock: Vec<Reading>| kinds(&[node("a", Seen { first, clock, ..Seen::default() })]);
        assert_eq!(clock(None, vec![reading(0, 0), reading(250, 250)]), []);
        assert_eq!(clock(None, vec![reading(0, 0), reading(250, 251)]), []);
        assert_eq!(clock(None, vec![reading(0, 0), reading(250, 270)]), [FindingKind::ClockRate]);
        assert_eq!(clock(None, vec![reading(0, 0), reading(250, 230)]), [FindingKind::ClockRate]);
        let slow = Reading { took: Duration::from_millis(40), ..reading(250, 270) };
        assert_eq!(clock(None, vec![reading(0, 0), slow]), []);
        let later = || vec![reading(10_000, 8_000), reading(10_250, 8_250)];
        assert_eq!(clock(Some(reading(0, 0)), later()), [FindingKind::ClockJump]);
        assert_eq!(clock(Some(reading(2_000, 0)), later()), []);
        assert_eq!(clock(Some(reading(0, 3_600_000)), later()), [FindingKind::ClockJump]);
    }

    #[test]
    fn faults_between_servers_are_told() {
        let at = |run_id: &str, clock: Reading| Seen {
            info: Some(Info { run_id: run_id.to_owned(), ..healthy() }),
            clock: vec![clock],
            ..Seen::default()
        };
        let pair = |one: Seen, other: Seen| kinds(&[node("a", one), node("b", other)]);
        assert_eq!(pair(at("x", reading(0, 0)), at("y", reading(5, 5))), []);
        assert_eq!(pair(at("x", reading(0, 0)), at("x", reading(5, 5))), [FindingKind::SameServer]);
        assert_eq!(pair(at("x", reading(0, 0)), at("y", reading(5, 3_000))), [FindingKind::ClocksApart]);
        let gone = || NodeFacts {
            address: "b".to_owned(),
            quarantine: None,
            seen: Err(StoreError::new(StoreErrorKind::Unavailable, "gone")),
        };
        assert_eq!(kinds(&[node("a", told(healthy())), gone()]), [FindingKind::Unreachable]);
        assert!(matches!(judge(&[gone(), gone()], WANTED), Err(LockError::Unavailable(_))));
    }

    #[test]
    fn the_worst_comes_first() {
        let mut info = healthy();
        (info.has_append_only_file, info.is_replica, info.max_memory) = (false, false, 1);
        "allkeys-lru".clone_into(&mut info.eviction);
        info.replicas = 1;
        assert_eq!(
            kinds(&[node("a", told(info))]),
            [FindingKind::Eviction, FindingKind::UnacknowledgedReplicas, FindingKind::Amnesia]
        );
    }
}

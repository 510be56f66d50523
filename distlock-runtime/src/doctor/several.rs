//! What is only to be seen of several servers together: those of Redlock, or nodes of a cluster.

use std::time::Duration;

use super::{Finding, FindingKind, Severity, Wanted, moved};
use crate::store::facts::{Memory, NodeFacts, Seen};

/// How much two servers' clocks may differ before it is told. Fencing tokens are taken from them.
const CLOCKS_APART: Duration = Duration::from_secs(1);

pub(super) fn judge(nodes: &[NodeFacts], wanted: Wanted, findings: &mut Vec<Finding>) {
    judge_pairs(nodes, findings);
    if nodes.iter().any(|node| node.quarantine.is_some()) {
        judge_votes(nodes, wanted, findings);
    }
}

fn judge_pairs(nodes: &[NodeFacts], findings: &mut Vec<Finding>) {
    let seen: Vec<(&str, &Seen)> =
        nodes.iter().filter_map(|node| Some((&*node.address, node.seen.as_ref().ok()?))).collect();
    for (place, (address, one)) in seen.iter().enumerate() {
        for (earlier, other) in &seen[..place] {
            let run_id = |seen: &Seen| seen.info.as_ref().map(|info| info.run_id.clone()).filter(|id| !id.is_empty());
            if run_id(one).is_some() && run_id(one) == run_id(other) {
                let what = if address == earlier {
                    "it is named twice, and counts twice".to_owned()
                } else {
                    format!("it is the same server as {earlier}, and counts twice")
                };
                let fix = "give each address a server of its own; another database of a server fails with it";
                findings.push(Finding::new(FindingKind::SameServer, Severity::Problem, address, what, fix));
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

/// Whether enough servers vote. One that cannot be used is a problem once it takes the majority away.
fn judge_votes(nodes: &[NodeFacts], wanted: Wanted, findings: &mut Vec<Finding>) {
    let servers = nodes.len();
    let quorum = servers / 2 + 1;
    let abstain: Vec<(&NodeFacts, &Seen, Duration)> = nodes
        .iter()
        .filter_map(|node| {
            let seen = node.seen.as_ref().ok()?;
            Some((node, seen, abstains_for(seen, wanted.quarantine?)?))
        })
        .collect();
    let answer = nodes.iter().filter(|node| node.seen.is_ok()).count();
    let severity = if answer - abstain.len() < quorum { Severity::Problem } else { Severity::Warning };
    for (node, seen, left) in abstain {
        let seconds = left.as_secs_f64().ceil();
        let (what, fix) = if seen.memory == Some(Memory::Lost) {
            (
                format!("it remembers no lock, and will not vote for {seconds} s from when it is first asked to"),
                "leave it to that time; only if all servers are new, call `LockManager::bootstrap` once instead",
            )
        } else {
            (
                format!("it has lost its memory, and does not vote for another {seconds} s"),
                "leave it to that time; its own locks may still be held",
            )
        };
        findings.push(Finding::new(FindingKind::Quarantine, severity, &node.address, what, fix));
    }
    if answer < quorum {
        let out = |it: &&mut Finding| it.kind == FindingKind::Unreachable && it.severity == Severity::Warning;
        for finding in findings.iter_mut().filter(out) {
            finding.severity = Severity::Problem;
            finding.fix = format!("bring it back; {answer} of {servers} servers answer, and it takes {quorum}");
        }
    }
    if servers.is_multiple_of(2) {
        let all: Vec<&str> = nodes.iter().map(|node| &*node.address).collect();
        let what = format!("{servers} servers bear no more failures than {}", servers - 1);
        let fix = "name 3 or 5";
        findings.push(Finding::new(FindingKind::EvenServers, Severity::Note, &all.join(", "), what, fix));
    }
}

/// How long a server still abstains, by its own clock.
fn abstains_for(seen: &Seen, quarantine: Duration) -> Option<Duration> {
    match seen.memory? {
        Memory::Lost => Some(quarantine),
        Memory::Since(since) => {
            let now = seen.clock.last()?.shown;
            let left = since.saturating_add(quarantine).checked_sub(now)?;
            // One in the future begins anew when it is asked.
            (!left.is_zero()).then_some(left.min(quarantine))
        }
    }
}

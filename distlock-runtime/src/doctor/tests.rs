//! What is judged, and how hard.

use super::*;
use crate::clock::Moment;
use crate::store::facts::Memory;
use crate::store::{StoreError, StoreErrorKind};

const WANTED: Wanted = Wanted { drift: 0.01, replica_acks: None, quarantine: None, cluster: false };

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

fn member(address: &str, seen: Seen) -> NodeFacts {
    NodeFacts { quarantine: Some(false), ..node(address, seen) }
}

fn failing(address: &str, kind: StoreErrorKind, text: &str) -> NodeFacts {
    NodeFacts { address: address.to_owned(), quarantine: Some(false), seen: Err(StoreError::new(kind, text)) }
}

#[test]
fn a_member_that_does_not_answer_is_a_problem_once_the_majority_is_gone() {
    let gone = |address| failing(address, StoreErrorKind::Unavailable, "gone");
    let seen = |address: &str| member(address, told(Info { run_id: address.to_owned(), ..healthy() }));
    let one = judge(&[seen("a"), seen("b"), gone("c")], WANTED).unwrap();
    assert_eq!(one.iter().map(Finding::severity).collect::<Vec<_>>(), [Severity::Warning]);
    let two = judge(&[seen("a"), gone("b"), gone("c")], WANTED).unwrap();
    assert_eq!(two.iter().map(Finding::severity).collect::<Vec<_>>(), [Severity::Problem; 2]);
    assert!(two[0].fix().contains("1 of 3 servers answer, and it takes 2"), "{}", two[0]);
}

#[test]
fn a_member_that_refuses_the_login_is_not_called_silent() {
    let refused = || failing("b", StoreErrorKind::Permission, "b: the login: it is wrong; write another one");
    let found = judge(&[member("a", told(healthy())), refused()], WANTED).unwrap();
    let finding = &found[0];
    assert_eq!((finding.kind(), finding.severity()), (FindingKind::Permission, Severity::Problem));
    assert_eq!((finding.what(), finding.fix()), ("the login: it is wrong", "write another one"));
    // Where none can be asked, the error says what will not mend itself.
    let gone = failing("a", StoreErrorKind::Unavailable, "gone");
    assert!(matches!(judge(&[gone, refused()], WANTED), Err(LockError::Permission(_))));
}

#[test]
fn an_even_number_of_servers_is_noted() {
    let servers = |number: usize| -> Vec<NodeFacts> {
        let seen = |place: usize| told(Info { run_id: place.to_string(), ..healthy() });
        (0..number).map(|place| member(&place.to_string(), seen(place))).collect()
    };
    assert_eq!(kinds(&servers(3)), []);
    let found = judge(&servers(4), WANTED).unwrap();
    assert_eq!(found.iter().map(Finding::kind).collect::<Vec<_>>(), [FindingKind::EvenServers]);
    assert_eq!((found[0].severity(), found[0].node()), (Severity::Note, "0, 1, 2, 3"));
}

#[test]
fn what_to_do_about_replicas_is_what_can_be_done() {
    let advice = |replicas, is_cluster, quarantine, wanted| {
        let nodes = [NodeFacts { quarantine, ..node("a", told(Info { replicas, is_cluster, ..healthy() })) }];
        let found = judge(&nodes, wanted).unwrap();
        let found = found.into_iter().find(|it| it.kind() == FindingKind::UnacknowledgedReplicas).unwrap();
        (found.what().to_owned(), found.fix().to_owned())
    };
    let (what, fix) = advice(1, false, None, WANTED);
    assert!(what.contains("its 1 replica may") && fix.contains("replica_acks"), "{what}; {fix}");
    let (what, fix) = advice(2, false, Some(false), WANTED);
    assert!(what.contains("each of its 2 replicas may"), "{what}");
    assert!(fix.contains("independent") && !fix.contains("replica_acks"), "{fix}");
    let (_, fix) = advice(1, true, None, WANTED);
    assert!(fix.contains("redis+cluster://") && !fix.contains("replica_acks"), "{fix}");
    let (_, fix) = advice(1, true, None, Wanted { cluster: true, ..WANTED });
    assert!(fix.contains("fencing") && fix.contains("replica_acks"), "{fix}");
}

#[test]
fn fewer_replicas_than_must_acknowledge_are_a_problem() {
    let found = |replicas| {
        let nodes = [node("a", told(Info { replicas, ..healthy() }))];
        judge(&nodes, Wanted { replica_acks: Some(2), ..WANTED }).unwrap()
    };
    assert_eq!(found(2), []);
    for replicas in [0, 1] {
        let found = found(replicas);
        assert_eq!((found[0].kind(), found[0].severity()), (FindingKind::TooFewReplicas, Severity::Problem));
        assert!(found[0].what().contains(&format!("2 replicas and {replicas} are")), "{}", found[0]);
    }
}

#[test]
fn servers_in_quarantine_are_told_with_the_time_that_is_left() {
    let wanted = Wanted { quarantine: Some(Duration::from_secs(60)), ..WANTED };
    // All clocks show the thousandth second.
    let server = |place: usize, memory: Option<Memory>| {
        let info = Info { run_id: place.to_string(), ..healthy() };
        let seen = Seen { memory, clock: vec![reading(0, 0)], ..told(info) };
        NodeFacts { quarantine: Some(true), ..node(&place.to_string(), seen) }
    };
    let since = |seconds| Some(Memory::Since(Duration::from_secs(seconds)));
    let severities = |memories: [Option<Memory>; 3]| {
        let nodes: Vec<_> = memories.into_iter().enumerate().map(|(place, memory)| server(place, memory)).collect();
        let found = judge(&nodes, wanted).unwrap();
        assert!(found.iter().all(|finding| finding.kind() == FindingKind::Quarantine), "{found:?}");
        found.iter().map(|finding| (finding.severity(), finding.to_string())).collect::<Vec<_>>()
    };
    assert_eq!(severities([since(0), since(940), None]), []);
    let one = severities([since(0), since(0), since(980)]);
    assert_eq!((one.len(), one[0].0), (1, Severity::Warning));
    assert!(one[0].1.contains("another 40 s"), "{}", one[0].1);
    let two = severities([since(0), Some(Memory::Lost), since(980)]);
    assert_eq!((two.len(), two[0].0, two[1].0), (2, Severity::Problem, Severity::Problem));
    assert!(two[0].1.contains("60 s") && two[0].1.contains("bootstrap"), "{}", two[0].1);
}

#[test]
fn a_sentinel_is_one_finding_whatever_it_refuses() {
    let refused = vec![Refused::Unknown("EVAL"), Refused::Unknown("GET"), Refused::Info];
    let info = Info { is_sentinel: true, version: "7.0.15".to_owned(), ..Info::default() };
    let found = judge(&[node("a", Seen { refused, ..told(info) })], WANTED).unwrap();
    assert_eq!(found.iter().map(Finding::kind).collect::<Vec<_>>(), [FindingKind::Sentinel]);
    assert!(found[0].to_string().starts_with("problem: a: it is a Sentinel"), "{}", found[0]);
    assert!(found[0].fix().contains("redis+sentinel://"), "{}", found[0]);
}

#[test]
fn a_server_that_is_named_twice_is_called_that() {
    let found = |one: &str, other: &str| {
        let found = judge(&[node(one, told(healthy())), node(other, told(healthy()))], WANTED).unwrap();
        found[0].to_string()
    };
    assert!(found("h:1", "h:1/2").contains("h:1/2: it is the same server as h:1,"));
    assert!(found("h:1", "h:1").contains("it is named twice"));
}

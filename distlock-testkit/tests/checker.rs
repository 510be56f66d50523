//! Histories that must pass, and for each kind of violation one that must not.

use std::time::Duration;

use distlock_testkit::{Event, Folder, History, Moment, Recorder, Report, Violation, check};

/// A moment of a made-up history, in milliseconds.
fn ms(at: u64) -> Moment {
    Moment::from_nanos(at * 1_000_000)
}

fn granted(lease: &str, key: &str, fencing: u64, at: u64, valid_until: u64) -> Event {
    // `b2` is the second lease of process `b`.
    let process = lease.trim_end_matches(char::is_numeric).to_owned();
    let (lease, key) = (lease.to_owned(), key.to_owned());
    Event::Granted { lease, process, key, fencing, at: ms(at), valid_until: ms(valid_until) }
}

fn extended(lease: &str, at: u64, valid_until: u64) -> Event {
    Event::Extended { lease: lease.to_owned(), at: ms(at), valid_until: ms(valid_until) }
}

fn ended(lease: &str, at: u64) -> Event {
    Event::Ended { lease: lease.to_owned(), at: ms(at) }
}

fn died(process: &str, at: u64) -> Event {
    Event::Died { process: process.to_owned(), at: ms(at) }
}

fn judge<const N: usize>(events: [Event; N]) -> Report {
    check(&events.into_iter().collect())
}

#[test]
fn holders_that_take_turns_are_clean() {
    let report = judge([
        granted("a1", "k", 1, 0, 100),
        ended("a1", 10),
        granted("b1", "k", 2, 10, 110), // at the very moment of the end
        extended("b1", 50, 300),
        ended("b1", 250),
        granted("a2", "k", 3, 260, 360), // never ended: its process hangs
        granted("b2", "k", 9, 360, 400), // at the very deadline
    ]);
    report.assert_clean();
    assert_eq!((report.grants(), report.keys(), report.processes()), (4, 1, 2));
}

#[test]
fn holders_of_different_keys_may_overlap() {
    judge([granted("a1", "k", 5, 0, 100), granted("b1", "l", 3, 0, 100)]).assert_clean();
}

#[test]
fn a_second_holder_before_the_end_is_an_overlap() {
    let report =
        judge([granted("a1", "k", 1, 0, 100), granted("b1", "k", 2, 40, 140), ended("a1", 60), ended("b1", 70)]);
    let [Violation::Overlap { first, second, by }] = report.violations() else { panic!("{report}") };
    assert_eq!((first.process.as_str(), second.process.as_str()), ("a", "b"));
    assert_eq!(*by, Duration::from_millis(20));
    assert_eq!(report.overlaps(), 1);
    assert_eq!(
        report.violations()[0].to_string(),
        "overlap on `k`: `b` (token 2) came in while `a` (token 1) was valid for another 20ms"
    );
}

#[test]
fn a_lease_without_an_end_is_valid_to_its_deadline() {
    let report = judge([granted("a1", "k", 1, 0, 100), granted("b1", "k", 2, 99, 199)]);
    assert_eq!(report.overlaps(), 1, "{report}");
}

#[test]
fn a_renewed_lease_is_valid_to_its_new_deadline() {
    let report = judge([granted("a1", "k", 1, 0, 100), extended("a1", 50, 150), granted("b1", "k", 2, 120, 220)]);
    assert_eq!(report.overlaps(), 1, "{report}");
}

#[test]
fn an_extension_never_shortens_a_lease() {
    let report = judge([granted("a1", "k", 1, 0, 100), extended("a1", 10, 50), granted("b1", "k", 2, 60, 160)]);
    assert_eq!(report.overlaps(), 1, "{report}");
}

#[test]
fn the_dead_hold_nothing_from_their_death_on() {
    let dead = [granted("a1", "k", 1, 0, 100), died("a", 30), granted("b1", "k", 2, 30, 130)];
    judge(dead).assert_clean();
    let alive = [granted("a1", "k", 1, 0, 100), died("a", 30), granted("b1", "k", 2, 29, 129)];
    assert_eq!(judge(alive).overlaps(), 1);
}

#[test]
fn a_long_lease_is_not_forgotten_behind_a_short_one() {
    let report = judge([
        granted("a1", "k", 1, 0, 1000),
        granted("b1", "k", 2, 10, 20),
        granted("c1", "k", 3, 500, 600), // overlaps the first, not the second
    ]);
    assert_eq!(report.overlaps(), 2, "{report}");
    assert!(report.to_string().contains("`c` (token 3) came in while `a` (token 1)"), "{report}");
}

#[test]
fn events_of_several_processes_need_not_be_written_in_order() {
    let report = judge([granted("b1", "k", 2, 40, 140), granted("a1", "k", 1, 0, 30)]);
    report.assert_clean();
}

#[test]
fn a_token_that_falls_or_stays_is_a_violation() {
    for (second, third) in [(5, 6), (4, 6), (6, 5)] {
        let report = judge([
            granted("a1", "k", 5, 0, 10),
            granted("b1", "k", second, 20, 30),
            granted("c1", "k", third, 40, 50),
        ]);
        let [Violation::TokenNotRising { .. }] = report.violations() else { panic!("{report}") };
    }
    let report = judge([granted("a1", "k", 5, 0, 10), granted("b1", "k", 5, 20, 30)]);
    assert_eq!(report.violations()[0].to_string(), "fencing token of `k` did not rise: `b` got 5 after `a` had got 5");
}

#[test]
fn a_token_is_compared_with_the_greatest_so_far() {
    let report = judge([granted("a1", "k", 9, 0, 10), granted("b1", "k", 1, 20, 30), granted("c1", "k", 2, 40, 50)]);
    assert_eq!(report.violations().len(), 2, "{report}");
}

#[test]
fn a_lease_that_is_granted_when_it_is_over_is_a_violation() {
    let report = judge([granted("a1", "k", 1, 100, 100)]);
    assert!(matches!(report.violations(), [Violation::GrantedExpired { .. }]), "{report}");
}

#[test]
fn a_history_that_contradicts_itself_proves_nothing() {
    let start = || granted("a1", "k", 1, 50, 150);
    let cases: [(&str, Vec<Event>); 6] = [
        ("a lease that was never granted", vec![ended("a1", 60)]),
        ("a lease that was never granted", vec![start(), extended("a2", 60, 200)]),
        ("before the grant", vec![start(), ended("a1", 40)]),
        ("after the end", vec![start(), ended("a1", 60), extended("a1", 70, 200)]),
        ("the same lease granted twice", vec![start(), granted("a1", "l", 2, 60, 160)]),
        ("granted to a process that is dead", vec![died("a", 10), start()]),
    ];
    for (expected, events) in cases {
        let report = check(&events.into_iter().collect());
        let found =
            report.violations().iter().any(|it| matches!(it, Violation::Nonsense { why, .. } if *why == expected));
        assert!(found, "expected `{expected}`: {report}");
    }
}

#[test]
#[should_panic(expected = "the history is empty")]
fn an_empty_history_is_no_proof() {
    check(&History::default()).assert_clean();
}

#[test]
fn a_report_of_a_broken_lock_stays_readable() {
    let report = check(&(0..100).map(|n| granted(&format!("a{n}"), "k", 1000 - n, n, 500)).collect());
    assert_eq!(report.violations().len(), 198);
    assert!(report.to_string().lines().count() < 10, "{report}");
    assert!(report.to_string().ends_with("and 193 more"), "{report}");
}

#[test]
fn a_hundred_thousand_leases_are_judged_in_one_go() {
    let long = granted("z1", "k", 0, 0, 1_000_000);
    let events = (1..100_000).map(|n| granted(&format!("a{n}"), "k", n, n, n + 1));
    let report = check(&std::iter::once(long).chain(events).collect());
    assert_eq!(report.overlaps(), 99_999);
}

#[test]
fn an_event_survives_its_line() {
    let odd = "a b\n%41;é\u{2028}";
    let events = [
        Event::Granted {
            lease: format!("{odd}#1"),
            process: odd.to_owned(),
            key: String::new(),
            fencing: u64::MAX,
            at: ms(1),
            valid_until: ms(2),
        },
        extended(odd, 3, 4),
        ended("%", 5),
        died("", 6),
    ];
    for event in events {
        let line = event.to_string();
        assert_eq!(line.lines().count(), 1, "{line:?}");
        assert_eq!(Event::parse(&line), Some(event), "{line:?}");
    }
}

#[test]
fn a_line_that_is_no_event_is_an_error_with_its_number() {
    for bad in ["", "granted", "granted a b c 1 2", "ended a", "ended a x", "ended a 1 2", "ended %zz; 1", "gone a 1"] {
        let error = History::parse(&format!("ended a 1\n{bad}\n")).unwrap_err().to_string();
        assert_eq!(error, format!("line 2 of the history is no event: `{bad}`"));
    }
}

#[test]
fn what_is_recorded_is_what_is_read() {
    let folder = Folder::new().unwrap();
    let path = folder.path().join("history");
    assert_eq!(History::read(&path).unwrap(), History::default());

    let one = Recorder::open_as(&path, "one").unwrap();
    let two = Recorder::open_as(&path, "two").unwrap();
    let before = Moment::now();
    let holding = one.granted("a key", 7, Duration::from_secs(1)).unwrap();
    holding.extend(Duration::from_secs(2)).unwrap();
    drop(holding);
    let middle = Moment::now();
    two.granted("a key", 8, Duration::from_secs(1)).unwrap().end().unwrap();
    std::mem::forget(one.granted("other", 9, Duration::from_secs(60)).unwrap());
    two.died("one").unwrap();

    let history = History::read(&path).unwrap();
    let report = check(&history);
    report.assert_clean();
    assert_eq!((report.grants(), report.keys(), report.processes()), (3, 2, 2));
    let leases = history.leases();
    assert_eq!(leases.iter().map(|held| held.ended).collect::<Vec<_>>(), [true, true, false]);
    assert!(leases[0].from > before && leases[0].until < middle);
    assert!(leases[2].until < Moment::now(), "the dead hold nothing");
    assert_eq!(history.next_grant("a key", middle).map(|held| held.process), Some("two".to_owned()));
    assert_eq!(history.next_grant("a key", Moment::now()), None);
}

#[test]
fn lines_of_many_writers_do_not_mix() {
    let folder = Folder::new().unwrap();
    let path = folder.path().join("history");
    std::thread::scope(|scope| {
        for writer in 0..8 {
            let recorder = Recorder::open_as(&path, format!("writer {writer}")).unwrap();
            scope.spawn(move || {
                for n in 0..200 {
                    drop(recorder.granted(&format!("key {writer}"), n, Duration::from_secs(1)).unwrap());
                }
            });
        }
    });
    let report = check(&History::read(&path).unwrap());
    report.assert_clean();
    assert_eq!(report.grants(), 1600);
}

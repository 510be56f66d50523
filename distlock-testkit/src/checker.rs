//! Judges a history: was there ever more than one holder, and did every fencing token rise?
//!
//! A lease counts as believed in from the moment its holder was told to its deadline, its end or its holder's death,
//! whichever came first. As all moments are of one clock, the question needs no search: the leases of a key are sorted
//! by their start and compared with whichever reaches furthest before them. That is O(n log n).

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::time::Duration;

use crate::{Event, Held, History, Moment};

/// A violation is shown with its neighbours' names, but a broken lock has thousands: this many are written out.
const SHOWN: usize = 5;

/// Something that must not happen.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// Two holders believed to hold one key at the same time.
    Overlap {
        /// Who was in.
        first: Held,
        /// Who came in before that.
        second: Held,
        /// For how long both believed.
        by: Duration,
    },
    /// A later grant of a key came with a fencing token that is not greater than an earlier one's.
    TokenNotRising {
        /// The earlier grant, of the greatest token so far.
        first: Held,
        /// The later grant.
        second: Held,
    },
    /// A lease was granted that its own deadline had already ended.
    GrantedExpired {
        /// The lease.
        held: Held,
    },
    /// The history contradicts itself, so that it proves nothing.
    Nonsense {
        /// The event that cannot be.
        event: Event,
        /// Why it cannot be.
        why: &'static str,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overlap { first, second, by } => write!(
                f,
                "overlap on `{}`: `{}` (token {}) came in while `{}` (token {}) was valid for another {by:?}",
                second.key, second.process, second.fencing, first.process, first.fencing
            ),
            Self::TokenNotRising { first, second } => write!(
                f,
                "fencing token of `{}` did not rise: `{}` got {} after `{}` had got {}",
                second.key, second.process, second.fencing, first.process, first.fencing
            ),
            Self::GrantedExpired { held } => write!(
                f,
                "`{}` was granted to `{}` (token {}) with no validity left",
                held.key, held.process, held.fencing
            ),
            Self::Nonsense { event, why } => {
                write!(f, "the history contradicts itself: {why}: `{event}`")
            }
        }
    }
}

/// What [`check`] found out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "a report that nobody reads proves nothing"]
pub struct Report {
    grants: usize,
    keys: usize,
    processes: usize,
    violations: Vec<Violation>,
}

impl Report {
    /// How many leases were granted. A test should look: a history without grants is clean as well.
    #[must_use]
    pub fn grants(&self) -> usize {
        self.grants
    }

    /// How many keys were locked.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.keys
    }

    /// How many processes held a lease.
    #[must_use]
    pub fn processes(&self) -> usize {
        self.processes
    }

    /// All that must not have happened.
    #[must_use]
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// How many grants came while another lease of the key was valid.
    #[must_use]
    pub fn overlaps(&self) -> usize {
        self.violations.iter().filter(|violation| matches!(violation, Violation::Overlap { .. })).count()
    }

    /// True when nothing happened that must not.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty()
    }

    /// Panics with the report unless it is clean and tells of at least one grant.
    ///
    /// # Panics
    ///
    /// That is what it is for.
    #[track_caller]
    pub fn assert_clean(&self) {
        assert!(self.grants > 0, "the history is empty: nothing has been recorded");
        assert!(self.is_clean(), "{self}");
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { grants, keys, processes, violations } = self;
        write!(f, "{grants} grants of {keys} keys to {processes} processes, {} violations", violations.len())?;
        for violation in violations.iter().take(SHOWN) {
            write!(f, "\n  {violation}")?;
        }
        if violations.len() > SHOWN {
            write!(f, "\n  and {} more", violations.len() - SHOWN)?;
        }
        Ok(())
    }
}

/// Judges a history.
///
/// Held to be wrong: two valid leases of one key at one moment; a fencing token that is not greater than all earlier
/// ones of its key; a lease granted when it was already over; events that contradict each other.
pub fn check(history: &History) -> Report {
    let leases = history.leases();
    let mut violations = nonsense(history);
    let mut by_key: BTreeMap<&str, Vec<&Held>> = BTreeMap::new();
    for held in &leases {
        by_key.entry(&held.key).or_default().push(held);
    }
    for leases in by_key.values() {
        check_key(leases, &mut violations);
    }
    Report {
        grants: leases.len(),
        keys: by_key.len(),
        processes: leases.iter().map(|held| &held.process).collect::<HashSet<_>>().len(),
        violations,
    }
}

/// Judges the leases of one key, which are sorted by their start.
fn check_key(leases: &[&Held], violations: &mut Vec<Violation>) {
    let mut reaches_furthest: Option<&Held> = None;
    let mut greatest_token: Option<&Held> = None;
    for &second in leases {
        if let Some(first) = reaches_furthest.filter(|first| first.until > second.from) {
            let by = first.until.min(second.until).since(second.from);
            violations.push(Violation::Overlap { first: first.clone(), second: second.clone(), by });
        }
        match greatest_token {
            Some(first) if second.fencing <= first.fencing => {
                violations.push(Violation::TokenNotRising { first: first.clone(), second: second.clone() });
            }
            _ => greatest_token = Some(second),
        }
        if reaches_furthest.is_none_or(|first| second.until > first.until) {
            reaches_furthest = Some(second);
        }
    }
}

/// Finds what no run can have written: it would be a fault of the recording, and must not pass for a proof.
fn nonsense(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut granted: BTreeMap<&str, Moment> = BTreeMap::new();
    let mut ended: HashSet<&str> = HashSet::new();
    let mut died: BTreeMap<&str, Moment> = BTreeMap::new();
    for event in history.events() {
        let why = match event {
            Event::Granted { lease, process, key, fencing, at, valid_until } => {
                if at >= valid_until {
                    found.push(Violation::GrantedExpired {
                        held: Held {
                            lease: lease.clone(),
                            process: process.clone(),
                            key: key.clone(),
                            fencing: *fencing,
                            from: *at,
                            until: *valid_until,
                            ended: false,
                        },
                    });
                }
                let dead = died.get(process.as_str()).is_some_and(|death| death < at);
                let twice = granted.insert(lease, *at).is_some();
                if dead {
                    Some("granted to a process that is dead")
                } else {
                    twice.then_some("the same lease granted twice")
                }
            }
            Event::Extended { lease, at, .. } | Event::Ended { lease, at } => match granted.get(lease.as_str()) {
                None => Some("a lease that was never granted"),
                Some(from) if at < from => Some("before the grant"),
                Some(_) if ended.contains(lease.as_str()) => Some("after the end"),
                Some(_) => None,
            },
            Event::Died { process, at } => {
                let twice = died.insert(process, *at).is_some();
                twice.then_some("died twice")
            }
        };
        if let Event::Ended { lease, .. } = event {
            ended.insert(lease);
        }
        if let Some(why) = why {
            found.push(Violation::Nonsense { event: event.clone(), why });
        }
    }
    found
}

//! Counting: what the answers of several servers say together, as soon as they say it.

use std::borrow::Cow;
use std::time::Duration;

use crate::error::Occupant;
use crate::store::redis::vote::Vote;
use crate::store::{Renewed, StoreError, StoreErrorKind};

/// How many of `servers` are a majority.
pub(super) fn quorum(servers: usize) -> usize {
    servers / 2 + 1
}

/// What a round of votes has come to.
#[derive(Debug)]
pub(super) enum Verdict {
    Granted,
    /// Enough servers would grant the keys under this number.
    Stale {
        next: u64,
    },
    /// One holder has the lock.
    Held {
        place: usize,
        occupant: Occupant,
    },
    /// Several ask at the same moment; or, if it goes on, this.
    Contested {
        or_else: Option<StoreError>,
    },
    Foreign {
        place: usize,
        what: &'static str,
    },
    Failed(StoreError),
}

/// The votes of one round.
#[derive(Debug)]
pub(super) struct Votes<'a> {
    /// Where the servers are, in their order.
    addresses: &'a [String],
    servers: usize,
    votes: Vec<(usize, Vote)>,
    errors: Vec<(usize, StoreError)>,
}

impl<'a> Votes<'a> {
    pub(super) fn new(addresses: &'a [String]) -> Self {
        Self { addresses, servers: addresses.len(), votes: Vec::new(), errors: Vec::new() }
    }

    pub(super) fn count(&mut self, server: usize, answer: Result<Vote, StoreError>) {
        match answer {
            Ok(vote) => self.votes.push((server, vote)),
            Err(error) => self.errors.push((server, error)),
        }
    }

    /// What the votes say, if those to come cannot change it.
    pub(super) fn verdict(&self) -> Option<Verdict> {
        let quorum = quorum(self.servers);
        let number = |which: fn(&Vote) -> bool| self.votes().filter(|vote| which(vote)).count();
        let granted = number(|vote| matches!(vote, Vote::Granted));
        if granted >= quorum {
            return Some(Verdict::Granted);
        }
        let to_come = self.servers - self.votes.len() - self.errors.len();
        if granted + to_come >= quorum {
            return None;
        }
        let stale = number(|vote| matches!(vote, Vote::Stale { .. }));
        if granted + stale + to_come >= quorum {
            let next = self.votes().filter_map(|vote| match vote {
                Vote::Stale { next } => Some(*next),
                _ => None,
            });
            return Some(Verdict::Stale { next: next.max().unwrap_or_default() });
        }
        // So many refusals are enough, whatever the others say.
        let enough = self.servers - quorum + 1;
        let held = number(|vote| matches!(vote, Vote::Held { .. }));
        if held >= enough {
            // Two that share an even number of servers see each other on half of them, and neither has the lock.
            let by_one = self.held().map(|(_, _, owner)| self.held_by(owner)).max().unwrap_or_default();
            if by_one < quorum && by_one + to_come >= quorum {
                return None;
            }
            return Some(if by_one < quorum {
                Verdict::Contested { or_else: None }
            } else {
                self.holder(held + quorum - self.servers)
            });
        }
        let mut foreign = self.votes().filter_map(|vote| match vote {
            Vote::Foreign { place, what } => Some((*place, *what)),
            _ => None,
        });
        if foreign.clone().count() >= enough
            && let Some((place, what)) = foreign.next()
        {
            return Some(Verdict::Foreign { place, what });
        }
        // What the servers to come could still make of it: busy, or an answer at all.
        if to_come > 0 && (held + to_come >= enough || self.votes.is_empty()) {
            return None;
        }
        let failure = self.failure(granted + stale, held);
        // Enough of them vote, for several: another moment may be a better one. Unless one of those is the holder, and on a
        // server that cannot tell.
        Some(if granted > 0 && held > 0 && granted + stale + held >= quorum {
            Verdict::Contested { or_else: Some(failure) }
        } else {
            Verdict::Failed(failure)
        })
    }

    fn votes(&self) -> impl Iterator<Item = &Vote> + Clone {
        self.votes.iter().map(|(_, vote)| vote)
    }

    fn held(&self) -> impl Iterator<Item = (usize, &Occupant, &str)> {
        self.votes().filter_map(|vote| match vote {
            Vote::Held { place, occupant, owner } => Some((*place, occupant, &**owner)),
            _ => None,
        })
    }

    /// On how many servers this holder was found.
    fn held_by(&self, owner: &str) -> usize {
        self.held().filter(|(_, _, other)| *other == owner).count()
    }

    /// Who has the lock. So many of the servers found taken must come free.
    fn holder(&self, to_free: usize) -> Verdict {
        let mut left: Vec<Duration> = self.held().filter_map(|(_, occupant, _)| occupant.retry_after).collect();
        left.sort_unstable();
        let retry_after = left.get(to_free.saturating_sub(1)).or(left.last()).copied();
        match self.held().max_by_key(|(_, _, owner)| self.held_by(owner)) {
            Some((place, occupant, _)) => {
                Verdict::Held { place, occupant: Occupant { retry_after, ..occupant.clone() } }
            }
            None => Verdict::Contested { or_else: None },
        }
    }

    /// Why a server has no part in the decision, if it has none.
    fn without_vote(&self, server: usize) -> Option<Cow<'_, str>> {
        if let Some((_, error)) = self.errors.iter().find(|(of, _)| *of == server) {
            return Some(error.text.as_str().into());
        }
        match self.votes.iter().find(|(of, _)| *of == server) {
            Some((_, vote)) => without_vote(vote),
            None => Some("no answer yet".into()),
        }
    }

    /// Why there is no decision.
    fn failure(&self, granted: usize, held: usize) -> StoreError {
        let enough = self.servers - quorum(self.servers) + 1;
        let errors = self.errors.iter().map(|(_, error)| error);
        let unanswered = errors.clone().any(|error| error.unanswered);
        for kind in [StoreErrorKind::Permission, StoreErrorKind::Config] {
            let mut of_kind = errors.clone().filter(|error| error.kind == kind);
            if of_kind.clone().count() >= enough
                && let Some(error) = of_kind.next()
            {
                return StoreError { unanswered, ..error.clone() };
            }
        }
        let failed = self.servers - granted - held;
        let reasons: Vec<String> = (0..self.servers)
            .filter_map(|server| Some(of_server(&self.addresses[server], &self.without_vote(server)?)))
            .collect();
        let kind = if self.votes.is_empty() {
            StoreErrorKind::Unavailable
        } else {
            StoreErrorKind::NoQuorum { granted, held, failed }
        };
        StoreError { unanswered, ..StoreError::new(kind, reasons.join("; ")) }
    }
}

/// What is the matter with a server, under its address.
pub(super) fn of_server(address: &str, problem: &str) -> String {
    if problem.contains(address) { problem.to_owned() } else { format!("{address}: {problem}") }
}

/// Why a server that answered did not vote.
fn without_vote(vote: &Vote) -> Option<Cow<'static, str>> {
    match vote {
        Vote::Abstains { left } => Some(
            format!("is new or may have lost its memory, and does not vote for another {:.1} s", left.as_secs_f64())
                .into(),
        ),
        Vote::Foreign { what, .. } => Some((*what).into()),
        Vote::Dead => Some("has heard that this attempt was given up".into()),
        Vote::Granted | Vote::Held { .. } | Vote::Stale { .. } => None,
    }
}

/// What the servers say of one key that was to be prolonged.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Prolonged {
    yes: usize,
    absent: usize,
    stolen: usize,
}

impl Prolonged {
    pub(super) fn count(&mut self, answer: Renewed) {
        match answer {
            Renewed::Yes => self.yes += 1,
            Renewed::Absent => self.absent += 1,
            Renewed::Stolen => self.stolen += 1,
            Renewed::Unknown => {}
        }
    }

    /// What is certain by now.
    pub(super) fn verdict(self, servers: usize) -> Renewed {
        let quorum = quorum(servers);
        if self.yes >= quorum {
            Renewed::Yes
        } else if self.absent + self.stolen > servers - quorum {
            if self.stolen > 0 { Renewed::Stolen } else { Renewed::Absent }
        } else {
            Renewed::Unknown
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(owner: &str, left: u64) -> Result<Vote, StoreError> {
        let occupant = Occupant { retry_after: Some(Duration::from_secs(left)), ..Occupant::default() };
        Ok(Vote::Held { place: 0, occupant, owner: owner.into() })
    }

    const ADDRESSES: [&str; 5] = ["a:1", "b:1", "c:1", "d:1", "e:1"];

    fn counted(servers: usize, answers: impl IntoIterator<Item = Result<Vote, StoreError>>) -> Votes<'static> {
        let addresses: Vec<String> = ADDRESSES[..servers].iter().map(|address| (*address).to_owned()).collect();
        let mut votes = Votes::new(addresses.leak());
        answers.into_iter().enumerate().for_each(|(server, answer)| votes.count(server, answer));
        votes
    }

    #[test]
    fn every_server_that_did_not_vote_is_named_with_its_reason() {
        let refused = StoreError::new(StoreErrorKind::Unavailable, "b:1: Connection refused");
        let abstains = Vote::Abstains { left: Duration::from_millis(9_960) };
        let votes = counted(4, [Ok(Vote::Granted), Err(refused), Ok(abstains)]);
        let Some(Verdict::Failed(error)) = votes.verdict() else { panic!("{:?}", votes.verdict()) };
        let text = "b:1: Connection refused; c:1: is new or may have lost its memory, and does not vote for another 10.0 s; d:1: no answer yet";
        assert_eq!(error.text, text);
        assert_eq!(error.kind, StoreErrorKind::NoQuorum { granted: 1, held: 0, failed: 3 });
    }

    #[test]
    fn more_than_half_of_the_servers_are_a_majority() {
        assert_eq!([1, 2, 3, 4, 5, 6, 7].map(quorum), [1, 2, 2, 3, 3, 4, 4]);
    }

    #[test]
    fn two_that_share_an_even_number_of_servers_are_not_each_others_holder() {
        let half = counted(4, [held("a", 1), held("a", 1)]);
        assert!(half.verdict().is_none());
        let split = counted(4, [held("a", 1), held("a", 1), held("b", 1), held("b", 1)]);
        assert!(matches!(split.verdict(), Some(Verdict::Contested { or_else: None })));
        let holder = counted(4, [held("a", 1), held("b", 1), held("a", 1), held("a", 1)]);
        assert!(matches!(holder.verdict(), Some(Verdict::Held { .. })));
    }

    #[test]
    fn a_majority_comes_free_when_the_last_of_it_does() {
        let on_all = counted(5, [held("a", 7), held("a", 3), held("a", 5), held("a", 1), held("a", 9)]);
        let Some(Verdict::Held { occupant, .. }) = on_all.verdict() else { panic!() };
        assert_eq!(occupant.retry_after, Some(Duration::from_secs(5)));
        let on_three = counted(5, [held("a", 7), held("a", 3), held("a", 5)]);
        let Some(Verdict::Held { occupant, .. }) = on_three.verdict() else { panic!() };
        assert_eq!(occupant.retry_after, Some(Duration::from_secs(3)));
    }

    #[test]
    fn numbers_that_were_too_small_everywhere_are_proposed_above_the_largest() {
        let votes = counted(3, [Ok(Vote::Stale { next: 9 }), Ok(Vote::Stale { next: 12 })]);
        assert!(matches!(votes.verdict(), Some(Verdict::Stale { next: 12 })));
        let granted = counted(3, [Ok(Vote::Granted), Ok(Vote::Stale { next: 9 }), Ok(Vote::Granted)]);
        assert!(matches!(granted.verdict(), Some(Verdict::Granted)));
    }

    #[test]
    fn a_renewal_is_good_or_bad_when_a_majority_says_so() {
        for yes in 0..=5_usize {
            for absent in 0..=5 - yes {
                for stolen in 0..=5 - yes - absent {
                    let mut tally = Prolonged::default();
                    let answers = [(Renewed::Yes, yes), (Renewed::Absent, absent), (Renewed::Stolen, stolen)];
                    for (answer, times) in answers {
                        (0..times).for_each(|_| tally.count(answer));
                    }
                    let expected = match (yes >= 3, absent + stolen >= 3, stolen) {
                        (true, _, _) => Renewed::Yes,
                        (_, true, 0) => Renewed::Absent,
                        (_, true, _) => Renewed::Stolen,
                        _ => Renewed::Unknown,
                    };
                    assert_eq!(tally.verdict(5), expected, "{yes} yes, {absent} absent, {stolen} stolen");
                }
            }
        }
    }
}

//! Taking a lock: rounds of votes on a proposed number, until a majority has decided.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::round::Round;
use super::standing::MayStand;
use super::tally::{Verdict, Votes};
use super::{Redlock, now_micros};
use crate::grant::BURIAL;
use crate::store::redis::vote::{Motion, Vote};
use crate::store::{Acquire, Acquired, FencingTokens, Release, Rest, StoreError, StoreErrorKind, Waiting};

/// How often a number is proposed in one round. Each time it is above what the servers named, so a further one is needed
/// only where another client was faster.
const PROPOSALS: usize = 4;

/// How far above what the servers named the second proposal is, in microseconds; it doubles with each.
const AHEAD_OF_OTHERS: u64 = 100;

/// The share of the expiry that one server may take for its answer, and the least that it may.
const SERVER_SHARE: u32 = 10;
const SERVER_LEAST: Duration = Duration::from_millis(20);

type VoteRound = Round<Result<Vote, StoreError>>;

impl Redlock {
    pub(super) async fn acquire(&self, request: &Acquire, limit: Duration) -> Result<Acquired, StoreError> {
        let begun = Instant::now();
        let Acquire { names, token, expiry, holder, reserve, previous, .. } = request;
        // The moment of the first question, which is in the same order on all servers.
        let wait = request.wait.map(|wait| Waiting { ticket: Some(wait.ticket.unwrap_or_else(now_micros)), ..wait });
        let motion = Arc::new(Motion {
            names: names.clone(),
            token: *token,
            expiry: *expiry,
            holder: holder.clone(),
            reserve: *reserve,
            previous: *previous,
            memory: self.memory.clone(),
            waiter: self.waiter,
            wait,
        });
        let mut proposals = 0;
        loop {
            proposals += 1;
            let number = self.next_number();
            let left = limit.saturating_sub(begun.elapsed());
            let (verdict, round) = self.put_to_vote(&motion, number, left).await;
            return match verdict {
                Verdict::Granted => {
                    self.standings.granted(*token, number);
                    let more = vec![number; names.len() - 1].into();
                    let fencing_tokens = FencingTokens { first: number, more };
                    let rest = self.collect(&motion, round);
                    Ok(Acquired::Granted { fencing_tokens, reserved: true, rest: Some(rest) })
                }
                Verdict::Stale { next } => {
                    // Others propose as well, in the meantime; each time it is more that they have to be ahead of.
                    self.correct(next.saturating_add(AHEAD_OF_OTHERS << proposals));
                    self.finish(&motion, round);
                    if proposals < PROPOSALS && begun.elapsed() < limit {
                        continue;
                    }
                    let kind = StoreErrorKind::NoQuorum { granted: 0, held: 0, failed: self.servers.len() };
                    let text = "the clocks of servers and clients differ so much that no fencing token was accepted by enough servers; set the clocks right";
                    let unanswered = self.standings.may_stand(*token);
                    Err(StoreError { unanswered, ..StoreError::new(kind, text) })
                }
                Verdict::Held { place, occupant } => {
                    let leftovers = self.standings.stands(*token);
                    if wait.is_some() || leftovers {
                        self.finish(&motion, round);
                    } else {
                        self.finish_and_clean(&motion, round);
                    }
                    Ok(Acquired::Held { place, occupant, ticket: wait.and_then(|wait| wait.ticket), leftovers })
                }
                Verdict::Contested { or_else } => {
                    self.finish(&motion, round);
                    Ok(Acquired::Contested { or_else })
                }
                Verdict::Foreign { place, what } => {
                    self.finish(&motion, round);
                    Ok(Acquired::Foreign { place, what, leftovers: self.standings.may_stand(*token) })
                }
                Verdict::Failed(error) => {
                    self.finish(&motion, round);
                    let unanswered = self.standings.may_stand(*token);
                    Err(StoreError { unanswered, ..error })
                }
            };
        }
    }

    /// One round of votes on a number, until it is decided.
    async fn put_to_vote(&self, motion: &Arc<Motion>, number: u64, limit: Duration) -> (Verdict, VoteRound) {
        let limit = self.server_limit(motion.expiry, limit);
        self.standings.ask(motion, self.servers.len());
        let mut round = self.round(|server| {
            let motion = motion.clone();
            async move { server.vote(&motion, number, limit).await }
        });
        let mut votes = Votes::new(self.health.addresses());
        loop {
            if let Some(verdict) = votes.verdict() {
                return (verdict, round);
            }
            let Some((server, answer)) = round.next().await else {
                // Every server has answered, so there is a verdict; this is for want of a proof.
                return (Verdict::Contested { or_else: None }, round);
            };
            self.standings.answered(motion.token, server, &answer);
            self.health.note(server, answer.as_ref().err());
            votes.count(server, answer);
        }
    }

    /// How long one server may take: small against the life of the lease.
    fn server_limit(&self, expiry: Duration, limit: Duration) -> Duration {
        self.response_timeout.min(limit).min((expiry / SERVER_SHARE).max(SERVER_LEAST))
    }

    /// Takes in what the others say, while nobody waits for it.
    fn finish(&self, motion: &Arc<Motion>, mut round: VoteRound) {
        let (standings, health, token) = (self.standings.clone(), self.health.clone(), motion.token);
        tokio::spawn(async move {
            while let Some((server, answer)) = round.next().await {
                health.note(server, answer.as_ref().err());
                standings.answered(token, server, &answer);
            }
        });
    }

    /// As [`finish`](Self::finish), for a token that nobody uses any more: a late grant is given back.
    fn finish_and_clean(&self, motion: &Arc<Motion>, mut round: VoteRound) {
        let (standings, sweeps, motion) = (self.standings.clone(), self.sweeps.clone(), motion.clone());
        let health = self.health.clone();
        self.spawn_tail(async move {
            while let Some((server, answer)) = round.next().await {
                health.note(server, answer.as_ref().err());
                standings.answered(motion.token, server, &answer);
            }
            let left = standings.give_back(motion.token).map(|left| left.servers).unwrap_or_default();
            standings.forget(motion.token);
            for MayStand { server, is_late } in left {
                let bury = is_late.then(|| motion.expiry.max(BURIAL));
                let release =
                    Release { names: motion.names.clone(), token: motion.token, keep: None, bury, waits_on: false };
                sweeps[server].leave(release, bury.unwrap_or(motion.expiry));
            }
        });
    }

    /// As [`finish`](Self::finish), by whoever wants to know where the lease is missing.
    fn collect(&self, motion: &Arc<Motion>, mut round: VoteRound) -> Rest {
        let (standings, health, token) = (self.standings.clone(), self.health.clone(), motion.token);
        Rest(Box::pin(async move {
            while let Some((server, answer)) = round.next().await {
                health.note(server, answer.as_ref().err());
                standings.answered(token, server, &answer);
            }
            standings.is_missing_somewhere(token)
        }))
    }
}

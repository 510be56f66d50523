//! The store on several independent servers, of which a majority decides: Redlock.
//!
//! Every operation asks all servers at the same time and ends as soon as a majority has decided it, or cannot any more;
//! a server that is frozen costs nothing but its own answer. The rest of a round goes on by itself.
//!
//! * **Acquire.** A server votes for a token if the keys are free there (`vote.lua`). A round that fails is given back
//!   wherever the token may stand, by the engine, which then comes with a new token; that names the one before, so that
//!   its leftovers do not stand in the way. If no holder has the lock and nobody gets a majority, several have asked at
//!   once: they try again, at random.
//! * **Fencing.** The client proposes a number: its clock in microseconds. A server accepts it only above all that it has
//!   accepted before. Two majorities have a server in common, so no number is granted twice, and of two grants that do not
//!   overlap the later one has the larger number. A number that is too small is proposed again in the same round, above
//!   all those that the servers named.
//! * **Renew.** A majority that prolongs the keys prolongs the lease; one without them ends it; anything else decides
//!   nothing. Only after a good renewal is the lease put on servers that lack it (`heal.lua`).
//! * **Release.** Goes to every server that may have the token. Where a command that puts it there may still be under way,
//!   the token is buried.
//! * **Loss of memory.** With a quarantine, a server without its epoch key abstains for the longest life of a lease, so
//!   that what it forgot has expired before it votes again.
//!
//! * **Waiting.** Who finds the key taken leaves its name in a line on each server, under a ticket that is the same on all.
//!   There is no common line, so it gives no right: it only says who is told first when the key is given back. Within a
//!   process the order is that of the gate.

mod round;
mod standing;
mod sweep;
mod tally;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::{Instant, timeout};

use self::round::Round;
use self::standing::{GiveBack, MayStand, Standings};
use self::sweep::Sweep;
use self::tally::{Prolonged, Verdict, Votes, quorum};
use super::ears::{Ear, Ears, Mark};
use super::facts::{Look, NodeFacts};
use super::redis::target::Target;
use super::redis::vote::{Memory, Missing, Motion, Vote};
use super::redis::{Hears, RedisStore};
use super::{
    Acquire, Acquired, BoxFuture, FencingTokens, Lane, LockStore, Release, Released, Renewal, Renewed, Rest,
    StoreError, StoreErrorKind, Token, Waiting, no_quarantine,
};
use crate::error::{Config, LockError};
use crate::events;
use crate::grant::BURIAL;
use crate::key::Names;

/// Bounds of the pause between two looks at a key that another process holds, where no server tells of anything, in
/// milliseconds.
const POLL: std::ops::Range<u64> = 20..250;

/// How long after the first server that tells of a key the others are waited for: it takes a majority that is free.
const TOLD_BY_OTHERS: Duration = Duration::from_millis(1);

/// How often a number is proposed in one round. Each time it is above what the servers named, so a further one is needed
/// only where another client was faster.
const PROPOSALS: usize = 4;

/// The share of the expiry that one server may take for its answer, and the least that it may.
const SERVER_SHARE: u32 = 10;
const SERVER_LEAST: Duration = Duration::from_millis(20);

/// More servers than anybody has.
const MOST_SERVERS: usize = 64;

#[derive(Debug)]
pub(crate) struct Redlock {
    servers: Box<[Arc<RedisStore>]>,
    sweeps: Box<[Arc<Sweep>]>,
    standings: Arc<Standings>,
    memory: Memory,
    response_timeout: Duration,
    /// How far the numbers that the servers accept are ahead of this clock, in microseconds, as far as is known.
    ahead: AtomicI64,
    /// Hear all servers.
    ears: Arc<Ears>,
    /// The name of this process in every line.
    waiter: Token,
}

impl Redlock {
    /// On these servers; connects to none.
    pub(crate) fn new(
        servers: Vec<Target>,
        memory: Memory,
        connect_timeout: Duration,
        response_timeout: Duration,
    ) -> Result<Self, LockError> {
        if servers.is_empty() || servers.len() > MOST_SERVERS {
            return Err(Config::new(format!(
                "Redlock with {} servers cannot be used; name 3 or 5 independent ones, as in `.redlock([\"redis://a\", \"redis://b\", \"redis://c\"])`",
                servers.len()
            ))
            .into());
        }
        if servers.len().is_multiple_of(2) {
            events::even_servers(servers.len());
        }
        let ears = Arc::<Ears>::default();
        let on = |target| RedisStore::heard_by(ears.clone(), target, connect_timeout, response_timeout);
        let servers: Box<[_]> = servers.into_iter().map(on).map(Arc::new).collect();
        let sweeps = servers.iter().map(|server| Sweep::new(server.clone(), response_timeout)).collect();
        Ok(Self {
            servers,
            sweeps,
            standings: Arc::default(),
            memory,
            response_timeout,
            ahead: AtomicI64::new(0),
            ears,
            waiter: Token::random(),
        })
    }

    /// Connects to all servers; completes when a majority answers, or cannot any more.
    pub(crate) async fn ready(&self, limit: Duration) -> Result<(), StoreError> {
        let mut round = self.round(|server| async move { server.ready(limit).await });
        let (mut ready, mut errors) = (0, Vec::new());
        while let Some((_, answer)) = round.next().await {
            match answer {
                Ok(()) => ready += 1,
                Err(error) => errors.push(error),
            }
            if ready >= quorum(self.servers.len()) {
                tokio::spawn(async move { while round.next().await.is_some() {} });
                return Ok(());
            }
        }
        let servers = self.servers.len();
        let error = errors.iter().find(|error| !error.kind.is_outage()).or(errors.first());
        let (kind, text) = error.map_or((StoreErrorKind::Unavailable, ""), |error| (error.kind, &*error.text));
        Err(StoreError::new(
            kind,
            format!("{ready} of {servers} lock servers can be used, and it takes {}: {text}", quorum(servers)),
        ))
    }

    /// Asks every server.
    fn round<T, F>(&self, question: impl Fn(Arc<RedisStore>) -> F) -> Round<T>
    where
        F: Future<Output = T> + Send + 'static,
    {
        Round::new(self.servers.iter().enumerate().map(|(number, server)| {
            let asked: BoxFuture<'static, T> = Box::pin(question(server.clone()));
            (number, asked)
        }))
    }

    async fn acquire(&self, request: &Acquire, limit: Duration) -> Result<Acquired, StoreError> {
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
                    self.correct(next);
                    self.finish(&motion, round);
                    if proposals < PROPOSALS && begun.elapsed() < limit {
                        continue;
                    }
                    Ok(Acquired::Contested)
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
                Verdict::Contested => {
                    self.finish(&motion, round);
                    Ok(Acquired::Contested)
                }
                Verdict::Foreign { place, what } => {
                    self.finish(&motion, round);
                    if self.standings.may_stand(*token) {
                        // An answer that the engine has to give back.
                        let text = format!("`{}`: {what}", names.at(place).key);
                        return Err(StoreError { kind: StoreErrorKind::Config, text, unanswered: true });
                    }
                    Ok(Acquired::Foreign { place, what })
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
        let mut votes = Votes::new(self.servers.len());
        loop {
            if let Some(verdict) = votes.verdict() {
                return (verdict, round);
            }
            let Some((server, answer)) = round.next().await else {
                // Every server has answered, so there is a verdict; this is for want of a proof.
                return (Verdict::Contested, round);
            };
            self.standings.answered(motion.token, server, &answer);
            votes.count(answer);
        }
    }

    /// How long one server may take: small against the life of the lease.
    fn server_limit(&self, expiry: Duration, limit: Duration) -> Duration {
        self.response_timeout.min(limit).min((expiry / SERVER_SHARE).max(SERVER_LEAST))
    }

    /// Takes in what the others say, while nobody waits for it.
    fn finish(&self, motion: &Arc<Motion>, mut round: VoteRound) {
        let (standings, token) = (self.standings.clone(), motion.token);
        tokio::spawn(async move {
            while let Some((server, answer)) = round.next().await {
                standings.answered(token, server, &answer);
            }
        });
    }

    /// As [`finish`](Self::finish), for a token that nobody uses any more: a late grant is given back.
    fn finish_and_clean(&self, motion: &Arc<Motion>, mut round: VoteRound) {
        let (standings, sweeps, motion) = (self.standings.clone(), self.sweeps.clone(), motion.clone());
        tokio::spawn(async move {
            while let Some((server, answer)) = round.next().await {
                standings.answered(motion.token, server, &answer);
            }
            let left = standings.give_back(motion.token).map(|left| left.servers).unwrap_or_default();
            standings.forget(motion.token);
            for MayStand { server, is_late } in left {
                let bury = is_late.then(|| motion.expiry.max(BURIAL));
                let release = Release { names: motion.names.clone(), token: motion.token, keep: None, bury };
                sweeps[server].leave(release, bury.unwrap_or(motion.expiry));
            }
        });
    }

    /// As [`finish`](Self::finish), by whoever wants to know where the lease is missing.
    fn collect(&self, motion: &Arc<Motion>, mut round: VoteRound) -> Rest {
        let (standings, token) = (self.standings.clone(), motion.token);
        Rest(Box::pin(async move {
            while let Some((server, answer)) = round.next().await {
                standings.answered(token, server, &answer);
            }
            standings.is_missing_somewhere(token)
        }))
    }

    /// The next number to propose: the clock, as the servers have corrected it.
    fn next_number(&self) -> u64 {
        now_micros().saturating_add_signed(self.ahead.load(Ordering::Relaxed))
    }

    /// Takes in which number would have been accepted.
    fn correct(&self, next: u64) {
        let ahead = i64::try_from(next).unwrap_or(i64::MAX).saturating_sub_unsigned(now_micros());
        self.ahead.store(ahead, Ordering::Relaxed);
    }

    async fn renew(&self, batch: &[Renewal], lane: Lane, limit: Duration) -> Result<Vec<Renewed>, StoreError> {
        let batch: Arc<[Renewal]> = batch.into();
        for renewal in batch.iter() {
            self.standings.may_live_for(renewal.token, renewal.expiry);
        }
        let mut round = self.round(|server| {
            let batch = batch.clone();
            async move { LockStore::renew(&*server, &batch, lane, limit).await }
        });
        let servers = self.servers.len();
        let mut tally = vec![Prolonged::default(); batch.len()];
        let mut lacking = Vec::new();
        let mut error = None;
        let verdicts = |tally: &[Prolonged]| -> Vec<Renewed> {
            tally.iter().map(|prolonged| prolonged.verdict(servers)).collect()
        };
        while let Some((server, answers)) = round.next().await {
            match answers {
                Ok(answers) => {
                    for (prolonged, answer) in tally.iter_mut().zip(&answers) {
                        prolonged.count(*answer);
                    }
                    note_absent(&mut lacking, server, &answers);
                }
                Err(failed) => {
                    error.get_or_insert(failed);
                }
            }
            if !verdicts(&tally).contains(&Renewed::Unknown) {
                break;
            }
        }
        let verdicts = verdicts(&tally);
        self.heal(batch, verdicts.clone(), lacking, round, limit);
        match error {
            Some(error) if verdicts.iter().all(|verdict| *verdict == Renewed::Unknown) => {
                Err(StoreError { unanswered: true, ..error })
            }
            _ => Ok(verdicts),
        }
    }

    /// Puts what was prolonged on servers that lack it, once all have answered.
    fn heal(
        &self,
        batch: Arc<[Renewal]>,
        verdicts: Vec<Renewed>,
        mut lacking: Vec<(usize, usize)>,
        mut round: Round<Result<Vec<Renewed>, StoreError>>,
        limit: Duration,
    ) {
        if !verdicts.contains(&Renewed::Yes) {
            return;
        }
        let (servers, standings) = (self.servers.clone(), self.standings.clone());
        tokio::spawn(async move {
            while let Some((server, answers)) = round.next().await {
                if let Ok(answers) = answers {
                    note_absent(&mut lacking, server, &answers);
                }
            }
            for (number, server) in servers.iter().enumerate() {
                let missing: Vec<Missing> = lacking
                    .iter()
                    .filter(|(lacks, place)| *lacks == number && verdicts.get(*place) == Some(&Renewed::Yes))
                    .filter_map(|(_, place)| {
                        let renewal = batch.get(*place)?;
                        standings.heal(renewal.token, &renewal.wire, renewal.expiry, number)
                    })
                    .collect();
                if missing.is_empty() {
                    continue;
                }
                let (server, standings) = (server.clone(), standings.clone());
                tokio::spawn(async move {
                    let healed = server.heal(&missing, limit).await;
                    for (place, missing) in missing.iter().enumerate() {
                        let stands = match &healed {
                            Ok(healed) => Some(healed.get(place).copied().unwrap_or(false)),
                            Err(error) => (!error.unanswered).then_some(false),
                        };
                        standings.healed(missing.motion.token, number, stands);
                    }
                });
            }
        });
    }

    async fn release(&self, request: &Release, lane: Lane, limit: Duration) -> Result<Released, StoreError> {
        let token = request.token;
        let Some(GiveBack { servers: owing, life, waits }) = self.standings.give_back(token) else {
            return Ok(Released::Absent);
        };
        if waits {
            self.leave_line(request, lane, limit);
        }
        let servers = self.servers.len();
        let requests: Vec<Release> = owing
            .iter()
            .map(|owes| {
                let bury = request.bury.or_else(|| owes.is_late.then(|| life.max(BURIAL)));
                Release { bury, ..request.clone() }
            })
            .collect();
        let mut round = Round::new(owing.iter().zip(&requests).map(|(owes, request)| {
            let (server, request) = (self.servers[owes.server].clone(), request.clone());
            let asked: BoxFuture<'static, _> =
                Box::pin(async move { LockStore::release(&*server, &request, lane, limit).await });
            (owes.server, asked)
        }));
        // A server without the token is as good as one that has given it back.
        let mut clean = servers - owing.len();
        let (mut to_come, mut lost, mut is_stolen, mut error) = (owing.len(), 0, false, None);
        // So many servers without the key say that it was lost before.
        let enough = servers - quorum(servers) + 1;
        while clean < quorum(servers) || (lost < enough && lost + to_come >= enough) {
            let Some((server, answer)) = round.next().await else { break };
            to_come -= 1;
            match answer {
                Ok(released) => {
                    self.standings.gave_back(token, server);
                    clean += 1;
                    lost += usize::from(released != Released::Deleted);
                    is_stolen |= released == Released::Stolen;
                }
                Err(failed) => {
                    error.get_or_insert(failed);
                }
            }
        }
        if clean < quorum(servers) {
            return Err(error.unwrap_or_else(|| StoreError::unanswered("too few of the lock servers answered")));
        }
        self.leave_to_sweep(token, life, owing.iter().map(|owes| owes.server).zip(requests).collect(), round);
        Ok(match (lost >= enough, is_stolen) {
            (false, _) => Released::Deleted,
            (true, true) => Released::Stolen,
            (true, false) => Released::Absent,
        })
    }

    /// Takes the process's name out of the lines. Nobody waits for it: a place that stays is forgotten by itself, soon.
    fn leave_line(&self, request: &Release, lane: Lane, limit: Duration) {
        let request = Release { token: self.waiter, keep: None, bury: None, ..request.clone() };
        let mut round = self.round(|server| {
            let request = request.clone();
            async move { LockStore::release(&*server, &request, lane, limit).await }
        });
        tokio::spawn(async move { while round.next().await.is_some() {} });
    }

    /// Sees to it that the servers that have not answered yet give the token back as well.
    fn leave_to_sweep(
        &self,
        token: Token,
        life: Duration,
        requests: Vec<(usize, Release)>,
        mut round: Round<Result<Released, StoreError>>,
    ) {
        let (standings, sweeps) = (self.standings.clone(), self.sweeps.clone());
        let finish = async move {
            while let Some((server, answer)) = round.next().await {
                if answer.is_ok() {
                    standings.gave_back(token, server);
                }
            }
            let left = standings.give_back(token).map(|left| left.servers).unwrap_or_default();
            standings.forget(token);
            for (server, request) in requests {
                if left.iter().any(|left| left.server == server) {
                    let life = request.bury.map_or(life, |burial| life.max(burial));
                    sweeps[server].leave(request, life);
                }
            }
        };
        tokio::spawn(finish);
    }
}

type VoteRound = Round<Result<Vote, StoreError>>;

/// Notes which of the keys a server said are not there.
fn note_absent(lacking: &mut Vec<(usize, usize)>, server: usize, answers: &[Renewed]) {
    let absent = answers.iter().enumerate().filter(|(_, answer)| **answer == Renewed::Absent);
    lacking.extend(absent.map(|(place, _)| (server, place)));
}

/// The wall clock only has to be roughly right: the servers see to the order.
fn now_micros() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_micros()).unwrap_or(u64::MAX)
}

impl LockStore for Redlock {
    fn acquire<'a>(&'a self, request: &'a Acquire, limit: Duration) -> BoxFuture<'a, Result<Acquired, StoreError>> {
        Box::pin(self.acquire(request, limit))
    }

    fn renew<'a>(
        &'a self,
        batch: &'a [Renewal],
        lane: Lane,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Vec<Renewed>, StoreError>> {
        Box::pin(self.renew(batch, lane, limit))
    }

    fn release<'a>(
        &'a self,
        request: &'a Release,
        lane: Lane,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Released, StoreError>> {
        Box::pin(self.release(request, lane, limit))
    }

    fn facts<'a>(&'a self, look: &'a Look, limit: Duration) -> BoxFuture<'a, Vec<NodeFacts>> {
        Box::pin(async move {
            let mut round = self.round(|server| {
                let look = look.clone();
                async move { server.look_at(&look, limit).await }
            });
            let mut nodes = Vec::new();
            while let Some((place, mut node)) = round.next().await {
                node.quarantine = Some(self.memory.quarantine.is_some());
                if let Ok(seen) = &mut node.seen {
                    // Nobody is told of anything by several servers.
                    seen.refused.retain(|refused| !refused.is_about_wake_ups());
                }
                nodes.push((place, node));
            }
            nodes.sort_by_key(|(place, _)| *place);
            nodes.into_iter().map(|(_, node)| node).collect()
        })
    }

    fn hands_on(&self) -> bool {
        true
    }

    fn is_spread(&self) -> bool {
        true
    }

    fn bootstrap(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async {
            if self.memory.quarantine.is_none() {
                return Err(no_quarantine());
            }
            let limit = self.response_timeout;
            let mut round = self.round(|server| {
                let memory = self.memory.clone();
                async move { server.bootstrap(&memory, limit).await }
            });
            // All of them: one that is left out would abstain.
            while let Some((_, answer)) = round.next().await {
                answer?;
            }
            Ok(())
        })
    }

    fn mark(&self) -> Mark {
        self.ears.mark()
    }

    fn listen(&self, names: &Arc<Names>, since: Mark) -> Ear {
        self.ears.listen(names, since)
    }

    fn wake_up<'a>(&'a self, ear: &'a Ear, at_most: Duration) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let begun = Instant::now();
            let limit = at_most.min(self.response_timeout);
            let mut round = self.round(|server| async move { server.hear(limit).await });
            let (mut already, mut newly) = (0, 0);
            // One that does not answer is not waited for.
            while already + newly < quorum(self.servers.len()) {
                match round.next().await {
                    Some((_, Hears::Already)) => already += 1,
                    Some((_, Hears::FromNowOn)) => newly += 1,
                    Some((_, Hears::Nothing)) => {}
                    None => break,
                }
            }
            tokio::spawn(async move { while round.next().await.is_some() {} });
            if newly > 0 {
                // It asks again, and says so.
                return;
            }
            let left = at_most.saturating_sub(begun.elapsed());
            if already == 0 {
                tokio::time::sleep(Duration::from_millis(fastrand::u64(POLL)).min(left)).await;
            } else if timeout(left, ear.told()).await.is_ok() {
                let _ = timeout(TOLD_BY_OTHERS, ear.told()).await;
            }
        })
    }
}

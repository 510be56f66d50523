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
//! * **Loss of memory.** With a quarantine, a server without an epoch of its run abstains for the longest life of a lease,
//!   so that what it forgot has expired before it votes again.
//! * **Waiting.** Who finds the key taken leaves its name in a line on each server, under a ticket that is the same on all.
//!   There is no common line, so it gives no right: it only says who is told first when the key is given back. Within a
//!   process the order is that of the gate.

mod acquire;
mod bootstrap;
mod health;
mod release;
mod renew;
mod round;
mod standing;
mod sweep;
mod tally;

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::{Instant, timeout};

use self::health::Health;
use self::round::Round;
use self::standing::Standings;
use self::sweep::Sweep;
use self::tally::{of_server, quorum};
use super::ears::{Ear, Ears, Mark};
use super::facts::{Look, NodeFacts};
use super::redis::target::Target;
use super::redis::vote::Memory;
use super::redis::{Hears, RedisStore};
use super::{
    Acquire, Acquired, BoxFuture, Lane, LockStore, Release, Released, Renewal, Renewed, StoreError, StoreErrorKind,
    Token,
};
use crate::background::Tails;
use crate::error::{Config, LockError};
use crate::events;
use crate::key::Names;

/// Bounds of the pause between two looks at a key that another process holds, where no server tells of anything, in
/// milliseconds.
const POLL: std::ops::Range<u64> = 20..250;

/// How often a server is asked at most to tell of keys that come free. One that breaks the connection each time wakes
/// everybody each time.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// How long after the first server that tells of a key the others are waited for: it takes a majority that is free.
const TOLD_BY_OTHERS: Duration = Duration::from_millis(1);

/// More servers than anybody has.
const MOST_SERVERS: usize = 64;

#[derive(Debug)]
pub(crate) struct Redlock {
    servers: Box<[Arc<RedisStore>]>,
    sweeps: Box<[Arc<Sweep>]>,
    health: Arc<Health>,
    tails: Arc<OnceLock<Tails>>,
    standings: Arc<Standings>,
    memory: Memory,
    response_timeout: Duration,
    /// How far the numbers that the servers accept are ahead of this clock, in microseconds, as far as is known.
    ahead: AtomicI64,
    /// Hear all servers.
    ears: Arc<Ears>,
    /// When each server was last asked to tell of keys that come free.
    asked_to_tell: Arc<Mutex<Vec<Option<Instant>>>>,
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
        let tails = Arc::<OnceLock<Tails>>::default();
        let sweep = |server: &Arc<RedisStore>| Sweep::new(server.clone(), tails.clone(), response_timeout);
        let sweeps = servers.iter().map(sweep).collect();
        let asked_to_tell = Arc::new(Mutex::new(vec![None; servers.len()]));
        let health = Arc::new(Health::new(servers.iter().map(|server| server.address())));
        Ok(Self {
            servers,
            sweeps,
            health,
            tails,
            standings: Arc::default(),
            memory,
            response_timeout,
            ahead: AtomicI64::new(0),
            ears,
            asked_to_tell,
            waiter: Token::random(),
        })
    }

    /// Connects to all servers; completes when a majority answers, or cannot any more.
    pub(crate) async fn ready(&self, limit: Duration) -> Result<(), StoreError> {
        let mut round = self.round(|server| async move { server.ready(limit).await });
        let (mut ready, mut errors) = (0, Vec::new());
        while let Some((server, answer)) = round.next().await {
            match answer {
                Ok(()) => ready += 1,
                Err(error) => errors.push((server, error)),
            }
            if ready >= quorum(self.servers.len()) {
                tokio::spawn(round.end());
                return Ok(());
            }
            if errors.len() > self.servers.len() - quorum(self.servers.len()) {
                break;
            }
        }
        let servers = self.servers.len();
        let kind = errors.iter().map(|(_, error)| error.kind).find(|kind| !kind.is_outage());
        let reasons: Vec<String> =
            errors.iter().map(|(server, error)| of_server(&self.health.addresses()[*server], &error.text)).collect();
        Err(StoreError::new(
            kind.unwrap_or(StoreErrorKind::Unavailable),
            format!(
                "{ready} of {servers} lock servers can be used, and it takes {}: {}",
                quorum(servers),
                reasons.join("; ")
            ),
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

    /// Does what is left of an operation that has ended, where a shutdown waits for it.
    fn spawn_tail(&self, tail: impl Future<Output = ()> + Send + 'static) {
        match self.tails.get() {
            Some(tails) => tails.spawn(tail),
            None => drop(tokio::spawn(tail)),
        }
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
}

/// Whether enough time has passed since the server was last asked.
fn may_ask(asked: &Mutex<Vec<Option<Instant>>>, server: usize) -> bool {
    let now = Instant::now();
    let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(last) = asked.get_mut(server) else { return false };
    let may = last.is_none_or(|last| now.saturating_duration_since(last) >= ASK_AGAIN);
    if may {
        *last = Some(now);
    }
    may
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

    fn settle(&self, tails: Tails) {
        // Of two managers on one store, which there are not, the first.
        let _ = self.tails.set(tails);
    }

    fn bootstrap(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(self.bootstrap())
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
            let mut round = Round::new(self.servers.iter().enumerate().map(|(number, server)| {
                let (server, asked) = (server.clone(), self.asked_to_tell.clone());
                let hears: BoxFuture<'static, Hears> = Box::pin(async move {
                    match server.hears() {
                        true => Hears::Already,
                        false if may_ask(&asked, number) => server.hear(limit).await,
                        false => Hears::Nothing,
                    }
                });
                (number, hears)
            }));
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
            tokio::spawn(round.end());
            if already < quorum(self.servers.len()) && newly > 0 {
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

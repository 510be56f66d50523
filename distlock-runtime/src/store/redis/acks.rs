//! Waiting until replicas have what was written: `replica_acks`.
//!
//! `WAIT` stops its whole connection, so it has connections of its own, and it counts the writes of its own connection
//! alone. So the keys are written about once more there (`ack.lua`), on the same server, behind the acquisition or renewal
//! that was answered; a replica that has got as far as that has got the other, too. Both commands leave in one piece: another
//! connection, with nothing written, would wait for nothing. In a Cluster a script writes about keys of one slot, so there is
//! one for each; a key that has moved away meanwhile counts as one that is not there.
//!
//! One question covers all who ask until it leaves. Whoever comes while it is under way is part of the next one, so nobody
//! waits for more than two of them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{Cmd, Pipeline, Value};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::connection::Connection;
use super::millis;
use super::replies::{answers, garbled};
use super::scripts::ACK;
use crate::error::brief;
use crate::store::{Lane, Renewal, StoreError, StoreErrorKind};

/// The most keys in one question, unless a single lock has more.
const MOST_KEYS: usize = 256;

/// How long a question may take beyond its time-outs before another one is asked beside it.
const STALLED: Duration = Duration::from_secs(1);

/// Asks on the runtimes of the two sides, so that a blocked one does not stop the other.
#[derive(Debug)]
pub(super) struct Acks {
    front: Arc<Line>,
    back: Arc<Line>,
}

/// Keys that were taken or renewed together.
type Written = Box<[Renewal]>;

#[derive(Debug)]
struct Line {
    connection: Connection,
    wanted: usize,
    /// How long replicas may take.
    limit: Duration,
    /// How long the server may take beside that.
    response_timeout: Duration,
    /// Which keys go in one script, in a Cluster; else all do.
    slot_of: Option<SlotOf>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<Asked>,
    /// Who asks, and since when.
    asking: Option<(u64, Instant)>,
    next_id: u64,
}

/// By slot, the places of the keys that one script is about.
type Scripts = BTreeMap<u16, Vec<usize>>;

/// Tells the slot of a key.
pub(super) type SlotOf = fn(&str) -> u16;

type Tell = oneshot::Sender<Result<(), StoreError>>;

/// Who wants to know.
#[derive(Debug)]
struct Asked {
    written: Written,
    /// From then on the answer is of no use.
    until: Instant,
    tell: Tell,
}

impl Acks {
    pub(super) fn new(
        wanted: usize,
        limit: Duration,
        response_timeout: Duration,
        slot_of: Option<SlotOf>,
        connection: impl Fn() -> Connection,
    ) -> Self {
        let line = || {
            let connection = connection();
            Arc::new(Line { connection, wanted, limit, response_timeout, slot_of, state: Mutex::default() })
        };
        Self { front: line(), back: line() }
    }

    /// Waits at most `limit` until enough replicas have what was written before. An error says that this is not known.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost but the answer.
    pub(super) async fn confirm(&self, written: Box<[Renewal]>, lane: Lane, limit: Duration) -> Result<(), StoreError> {
        let line = match lane {
            Lane::Awaited | Lane::Detached => &self.front,
            Lane::Back => &self.back,
        };
        let (tell, told) = oneshot::channel();
        if let Some(id) = line.join(Asked { written, until: Instant::now() + limit, tell }) {
            tokio::spawn(Asking { line: line.clone(), id }.run());
        }
        match timeout(limit, told).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(unavailable("the runtime that asked the replicas has ended".to_owned())),
            Err(_elapsed) => Err(line.too_few(None, limit)),
        }
    }
}

impl Line {
    /// Leaves it to whoever asks, or gives the number under which the caller is to. One that has not come back by now sits on
    /// a runtime that nobody runs.
    fn join(&self, asked: Asked) -> Option<u64> {
        let mut state = self.lock();
        state.waiting.push(asked);
        let longest = (self.limit + self.response_timeout).saturating_add(STALLED);
        if state.asking.is_some_and(|(_, since)| since.elapsed() < longest) {
            return None;
        }
        state.next_id += 1;
        state.asking = Some((state.next_id, Instant::now()));
        Some(state.next_id)
    }

    /// Asks within `left`, and once more where the connection broke while nobody used it.
    async fn ask(&self, all: &[&Written], left: Duration) -> Result<Vec<Result<(), StoreError>>, StoreError> {
        let begun = Instant::now();
        let limit = left.min(self.limit + self.response_timeout);
        match self.ask_once(all, limit).await {
            Err(error) if error.kind.is_outage() && begun.elapsed() < limit / 2 => {
                self.ask_once(all, limit.saturating_sub(begun.elapsed())).await
            }
            answers => answers,
        }
    }

    async fn ask_once(&self, all: &[&Written], limit: Duration) -> Result<Vec<Result<(), StoreError>>, StoreError> {
        // The server says by itself that their time is over, so one that does not is not there.
        let replicas_limit = limit.saturating_sub(self.response_timeout.min(limit / 4)).min(self.limit);
        let keys: Vec<&Renewal> = all.iter().flat_map(|written| written.iter()).collect();
        let mut scripts: Scripts = BTreeMap::new();
        for (place, Renewal { wire, .. }) in keys.iter().enumerate() {
            scripts.entry(self.slot_of.map_or(0, |slot_of| slot_of(wire))).or_default().push(place);
        }
        let in_cluster = self.slot_of.is_some();
        let commands = self.question(&keys, &scripts, replicas_limit);
        let begun = Instant::now();
        let answer = self.connection.send_each(&commands, limit).await;
        let mut told = answer.map_err(|error| {
            if begun.elapsed() < limit {
                return error;
            }
            // A short question says nothing about the connection.
            if limit >= self.response_timeout {
                self.connection.let_go();
            }
            self.too_few(None, limit)
        })?;
        let got = told.pop().ok_or_else(|| garbled("ack"))?;
        let mut has = vec![false; keys.len()];
        let mut has_moved = false;
        let told = told.into_iter().skip(usize::from(in_cluster)).step_by(1 + usize::from(in_cluster));
        for (places, told) in scripts.values().zip(told) {
            match told.map_err(|error| self.connection.meaning(&error)) {
                Ok(found) => {
                    let found = answers(found, |answer| Some(answer == 1)).filter(|found| found.len() == places.len());
                    places.iter().zip(found.ok_or_else(|| garbled("ack"))?).for_each(|(place, it)| has[*place] = it);
                }
                Err(error) if is_elsewhere(&error) => has_moved = true,
                Err(error) => return Err(error),
            }
        }
        let got = match got {
            Ok(Value::Int(got)) => usize::try_from(got).unwrap_or_default(),
            // A replica by now, which has none of its own.
            Err(_) if has_moved => 0,
            Err(error) => {
                let meaning = self.connection.meaning(&error);
                if meaning.kind == StoreErrorKind::Permission {
                    return Err(meaning);
                }
                self.connection.let_go();
                return Err(unavailable(format!("its replicas cannot be asked: {}", meaning.text)));
            }
            Ok(_) => return Err(garbled("ack")),
        };
        if !in_cluster && has.contains(&false) {
            // The address may lead to another server by now.
            self.connection.let_go();
        }
        let mut has = has.into_iter();
        Ok(all
            .iter()
            .map(|written| {
                let mut has_them = true;
                // All of its own, so that the next one begins with its own.
                has.by_ref().take(written.len()).for_each(|has| has_them &= has);
                self.judge(has_them, got, replicas_limit)
            })
            .collect())
    }

    /// The scripts, then `WAIT`.
    fn question(&self, keys: &[&Renewal], scripts: &Scripts, replicas_limit: Duration) -> Pipeline {
        let mut commands = Pipeline::with_capacity(scripts.len() * 2 + 1);
        for places in scripts.values() {
            if self.slot_of.is_some() {
                // The slot may be on its way here.
                commands.cmd("ASKING");
            }
            commands.add_command(ACK.whole(places.len(), |command: &mut Cmd| {
                for place in places {
                    command.arg(&*keys[*place].wire);
                }
                for place in places {
                    command.arg(keys[*place].token.as_str()).arg(millis(keys[*place].expiry));
                }
            }));
        }
        // Zero would be for ever.
        commands.cmd("WAIT").arg(self.wanted).arg(millis(replicas_limit).max(1));
        commands
    }

    fn judge(&self, has_them: bool, got: usize, within: Duration) -> Result<(), StoreError> {
        if !has_them {
            return Err(unavailable(
                "the key is not on the server whose replicas were asked; a failover may be under way".to_owned(),
            ));
        }
        if got < self.wanted { Err(self.too_few(Some(got), within)) } else { Ok(()) }
    }

    /// `got` is `None` where the time of the call ended before the server said how many; then none is known of.
    fn too_few(&self, got: Option<usize>, within: Duration) -> StoreError {
        let (wanted, within) = (self.wanted, brief(within));
        let how_many = match got {
            Some(got) => format!("{got} of {wanted}"),
            None if wanted == 1 => "0 of 1".to_owned(),
            None => format!("fewer than {wanted}"),
        };
        unavailable(format!(
            "{how_many} replicas acknowledged the lock within {within}; check that so many are connected, or lower `replica_acks`"
        ))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs under the lock, so a poisoned state is still whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks for those who wait until nobody does. Dropped, it tells them: its runtime has ended.
struct Asking {
    line: Arc<Line>,
    id: u64,
}

impl Asking {
    async fn run(self) {
        // Behind the tasks that are ready now: what they ask goes along.
        tokio::task::yield_now().await;
        while let Some(gathered) = self.take() {
            let all: Vec<_> = gathered.iter().map(|asked| &asked.written).collect();
            let now = Instant::now();
            let left = gathered.iter().map(|asked| asked.until.saturating_duration_since(now)).max();
            let answers = match self.line.ask(&all, left.unwrap_or_default()).await {
                Ok(answers) => answers,
                Err(error) => gathered.iter().map(|_| Err(error.clone())).collect(),
            };
            for (asked, answer) in gathered.into_iter().zip(answers) {
                let _ = asked.tell.send(answer);
            }
        }
    }

    /// Those for the next question; `None` if there are none, or another one asks.
    fn take(&self) -> Option<Vec<Asked>> {
        let mut state = self.line.lock();
        if state.asking.is_none_or(|(id, _)| id != self.id) {
            return None;
        }
        state.waiting.retain(|asked| !asked.tell.is_closed());
        if state.waiting.is_empty() {
            state.asking = None;
            return None;
        }
        state.asking = Some((self.id, Instant::now()));
        let mut keys = 0;
        let mut fits = |asked: &Asked| {
            keys += asked.written.len();
            keys <= MOST_KEYS
        };
        let count = state.waiting.iter().map_while(|it| fits(it).then_some(())).count().max(1);
        let rest = state.waiting.split_off(count);
        Some(std::mem::replace(&mut state.waiting, rest))
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let abandoned = {
            let mut state = self.line.lock();
            match state.asking {
                Some((id, _)) if id == self.id => {
                    state.asking = None;
                    std::mem::take(&mut state.waiting)
                }
                _ => Vec::new(),
            }
        };
        drop(abandoned);
    }
}

/// Whether the node sends to another one of its cluster.
#[cfg(feature = "cluster")]
fn is_elsewhere(error: &StoreError) -> bool {
    error.detour.is_some()
}

#[cfg(not(feature = "cluster"))]
fn is_elsewhere(_: &StoreError) -> bool {
    false
}

fn unavailable(text: String) -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, text)
}

//! The store on a Redis Cluster: each command goes to the node that serves the slot of its keys.
//!
//! Not through the client crate's cluster connection: that one repeats commands by itself, has its own time-outs, and
//! hides which connection a command took, while a compensation has to follow its acquisition. So there is a map of
//! the slots here, a [`RedisStore`] for each node, and a way between them.
//!
//! * All keys of a lock and their companions are in one slot, the fencing counter of this slot among them.
//! * Renewals go in one script per slot, and each script by itself: the client writes those of one node together anyhow, and
//!   none waits for another's answer.
//! * Acquisitions of the same moment go each by itself as well: their keys are hardly ever in one slot.
//! * Waiters are told over sharded pub/sub, so that a message stays on the node of its key, and on a connection
//!   of their own: a server ends a sharded subscription unasked when the slot moves away, and the client crate takes that
//!   for the answer to a command that is under way.

mod detour;
mod layout;
mod seeds;
mod topology;

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

pub(crate) use self::detour::Detour;
use self::detour::{Leg, Way};
use self::seeds::Seeds;
use self::topology::Topology;
use super::listening::Listening;
use super::scripts::Form;
use super::{garbled, poll};
use crate::key::Names;
use crate::slot::slot_of;
use crate::store::ears::{Ear, Ears, Mark};
use crate::store::{Acquire, Acquired, BoxFuture, Lane, LockStore, Release, Released, Renewal, Renewed, StoreError};

/// How long a connection that only listens is believed to work without a sign of it.
const TRUSTED: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(crate) struct ClusterStore {
    topology: Arc<Topology>,
    ears: Arc<Ears>,
    response_timeout: Duration,
}

impl ClusterStore {
    /// Reads what stands behind the scheme of the URL; connects to nothing.
    pub(crate) fn open(rest: &str, connect_timeout: Duration, response_timeout: Duration) -> Result<Self, StoreError> {
        let ears = Arc::<Ears>::default();
        let topology = Topology::new(Seeds::read(rest)?, connect_timeout, response_timeout, ears.clone());
        Ok(Self { topology: Arc::new(topology), ears, response_timeout })
    }

    /// Learns which node serves which slots.
    pub(crate) async fn ready(&self, limit: Duration) -> Result<(), StoreError> {
        self.topology.ready(limit).await
    }

    async fn acquire(&self, request: &Acquire, limit: Duration) -> Result<Acquired, StoreError> {
        let mut way = Way::new(&self.topology, slot(&request.names), Lane::Awaited, limit);
        loop {
            let leg = way.next().await?;
            match leg.node.store.acquire_alone(request, leg.limit).await {
                Ok(answer) => return Ok(answer),
                Err(error) => way.turn_with_several(&leg, error).await?,
            }
        }
    }

    async fn release(&self, request: &Release, lane: Lane, limit: Duration) -> Result<Released, StoreError> {
        let mut way = Way::new(&self.topology, slot(&request.names), lane, limit);
        loop {
            let leg = way.next().await?;
            match leg.node.store.release_alone(request, lane, leg.limit).await {
                Ok(answer) => return Ok(answer),
                Err(error) => way.turn_with_several(&leg, error).await?,
            }
        }
    }

    async fn renew(&self, batch: &[Renewal], lane: Lane, limit: Duration) -> Result<Vec<Renewed>, StoreError> {
        let begun = Instant::now();
        let mut answers = Vec::with_capacity(batch.len());
        // The engine makes batches by the slot, so there is one part.
        for part in batch.chunk_by(|a, b| slot_of(&a.wire) == slot_of(&b.wire)) {
            answers.extend(renew_in_slot(&self.topology, part, lane, limit.saturating_sub(begun.elapsed())).await?);
        }
        Ok(answers)
    }

    async fn wake_up(&self, ear: &Ear, at_most: Duration) {
        let begun = Instant::now();
        let left = || at_most.saturating_sub(begun.elapsed());
        let slot = slot(ear.names());
        let Some(node) = self.topology.owner(slot) else { return poll(at_most).await };
        let listener = &node.store.listener;
        let known = listener.listening();
        let listening = match known {
            Listening::Refused => known,
            Listening::Yes if listener.is_trusted(TRUSTED) => known,
            Listening::Yes | Listening::NotYet => {
                listener.listen_in(slot, (at_most / 2).min(self.response_timeout)).await
            }
        };
        match (known, listening) {
            (Listening::Yes, Listening::Yes) => {
                let _ = timeout(left(), ear.told()).await;
            }
            // From now on it can be told: it asks again, and says so.
            (_, Listening::Yes) => {}
            _ => poll(left()).await,
        }
    }
}

/// Renews keys of one slot. While the slot is on its way, the node that has it refuses keys that are partly here and partly
/// there; each by itself, they are found.
async fn renew_in_slot(
    topology: &Arc<Topology>,
    part: &[Renewal],
    lane: Lane,
    limit: Duration,
) -> Result<Vec<Renewed>, StoreError> {
    let begun = Instant::now();
    let Some(first) = part.first() else { return Ok(Vec::new()) };
    let mut way = Way::new(topology, slot_of(&first.wire), lane, limit);
    loop {
        let leg = way.next().await?;
        let Leg { node, asking, limit: left } = &leg;
        let form = if *asking { Form::Asking } else { Form::Known };
        match node.store.renew(part, form, lane, *left).await {
            Ok(answers) => return Ok(answers),
            Err(error) if part.len() > 1 && matches!(error.detour.as_deref(), Some(Detour::TryAgain)) => {
                return renew_each(topology, part, lane, limit.saturating_sub(begun.elapsed())).await;
            }
            Err(error) => way.turn(&leg, error).await?,
        }
    }
}

/// Renews each key by itself, all at the same time.
async fn renew_each(
    topology: &Arc<Topology>,
    part: &[Renewal],
    lane: Lane,
    limit: Duration,
) -> Result<Vec<Renewed>, StoreError> {
    let mut sent = JoinSet::new();
    for (place, renewal) in part.iter().enumerate() {
        sent.spawn(renew_one(topology.clone(), renewal.clone(), place, lane, limit));
    }
    let mut answers = vec![None; part.len()];
    while let Some(ended) = sent.join_next().await {
        let (place, answer) =
            ended.map_err(|_| StoreError::unanswered("the runtime that asked the cluster has ended"))?;
        answers[place] = answer?.pop();
    }
    answers.into_iter().collect::<Option<_>>().ok_or_else(|| garbled("renew"))
}

/// [`renew_in_slot`] for a single key, as a future that it can start itself.
fn renew_one(
    topology: Arc<Topology>,
    renewal: Renewal,
    place: usize,
    lane: Lane,
    limit: Duration,
) -> BoxFuture<'static, (usize, Result<Vec<Renewed>, StoreError>)> {
    Box::pin(async move {
        let answer = renew_in_slot(&topology, std::slice::from_ref(&renewal), lane, limit).await;
        (place, answer)
    })
}

/// That of all keys of a lock: others are refused when they are named.
fn slot(names: &Names) -> u16 {
    slot_of(&names.first().wire)
}

impl LockStore for ClusterStore {
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

    fn group(&self, wire: &str) -> u32 {
        slot_of(wire).into()
    }

    fn release<'a>(
        &'a self,
        request: &'a Release,
        lane: Lane,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Released, StoreError>> {
        Box::pin(self.release(request, lane, limit))
    }

    fn hands_on(&self) -> bool {
        true
    }

    fn mark(&self) -> Mark {
        self.ears.mark()
    }

    fn listen(&self, names: &Arc<Names>, since: Mark) -> Ear {
        self.ears.listen(names, since)
    }

    fn wake_up<'a>(&'a self, ear: &'a Ear, at_most: Duration) -> BoxFuture<'a, ()> {
        Box::pin(self.wake_up(ear, at_most))
    }
}

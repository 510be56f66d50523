//! The store on a Redis Cluster: each command goes to the node that serves the slot of its keys.
//!
//! Not through the client crate's cluster connection: that one repeats commands by itself, has its own time-outs, and
//! hides which connection a command took, while a compensation has to follow its acquisition. So there is a map of
//! the slots here, a [`RedisStore`] for each node, and a way between them.
//!
//! * All keys of a lock and their companions are in one slot, the fencing counter of this slot among them.
//! * Renewals for one node go in one packet, a script for each slot; those for another node do not wait for them.
//! * Acquisitions of the same moment go each by itself as well: their keys are hardly ever in one slot.
//! * Waiters are told over sharded pub/sub, so that a message stays on the node of its key, and on a connection
//!   of their own: a server ends a sharded subscription unasked when the slot moves away, and the client crate takes that
//!   for the answer to a command that is under way.

mod detour;
mod layout;
mod renewals;
mod seeds;
mod topology;

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

pub(crate) use self::detour::Detour;
use self::detour::Way;
use self::seeds::Seeds;
use self::topology::Topology;
use super::listening::Listening;
use super::poll;
use super::target::Access;
use crate::key::Names;
use crate::slot::slot_of;
use crate::store::ears::{Ear, Ears, Mark};
use crate::store::facts::{Look, NodeFacts};
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
    /// Reads the URL of a server with more than one host; connects to nothing.
    pub(crate) fn open(
        url: &str,
        access: Access,
        connect_timeout: Duration,
        response_timeout: Duration,
        replica_acks: Option<(usize, Duration)>,
    ) -> Result<Self, StoreError> {
        let (seeds, ears) = (Seeds::read(url, access)?, Arc::<Ears>::default());
        let topology = Topology::new(seeds, connect_timeout, response_timeout, replica_acks, ears.clone());
        Ok(Self { topology: Arc::new(topology), ears, response_timeout })
    }

    /// Learns which node serves which slots.
    pub(crate) async fn ready(&self, limit: Duration) -> Result<(), StoreError> {
        self.topology.ready(limit).await
    }

    async fn acquire(&self, request: &Acquire, limit: Duration) -> Result<Acquired, StoreError> {
        let begun = Instant::now();
        let mut way = Way::new(&self.topology, slot(&request.names), Lane::Awaited, self.topology.own_share(limit));
        loop {
            let leg = way.next().await?;
            let store = &leg.node.store;
            match store.acquire_alone(request, leg.limit).await {
                Ok(answer) => return store.acknowledge(request, answer, limit.saturating_sub(begun.elapsed())).await,
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

    /// Looks at all primaries at the same time.
    async fn facts(&self, look: &Look, limit: Duration) -> Vec<NodeFacts> {
        let begun = Instant::now();
        // So that there is time to look around, too, where the map is not told.
        let nodes = self.topology.nodes(limit / 2).await;
        let left = limit.saturating_sub(begun.elapsed());
        let mut looks = JoinSet::new();
        for (place, node) in nodes.into_iter().enumerate() {
            let look = look.clone();
            looks.spawn(async move { (place, node.store.look_at(&look, left).await) });
        }
        let mut seen = Vec::new();
        while let Some(looked) = looks.join_next().await {
            // One that is missing belongs to a runtime that is ending.
            seen.extend(looked);
        }
        seen.sort_by_key(|(place, _)| *place);
        seen.into_iter().map(|(_, facts)| facts).collect()
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
        Box::pin(renewals::renew(&self.topology, batch, lane, limit))
    }

    fn group(&self, wire: &str) -> u32 {
        self.topology.group(slot_of(wire))
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
        Box::pin(self.facts(look, limit))
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

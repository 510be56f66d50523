//! The nodes of a cluster, and which of them serves which slot.
//!
//! The map is asked for when it is needed and in doubt: at the start, after a node did not answer, and while the cluster
//! says that it is down. What a node says of a single slot (`MOVED`) is believed at once, and the whole map is asked for
//! beside it. Any node can be asked; the first one that answers is believed, for it is corrected by the next `MOVED`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::layout::{Address, Share, shares};
use super::seeds::Seeds;
use crate::slot::SLOTS;
use crate::store::ears::Ears;
use crate::store::redis::RedisStore;
use crate::store::redis::answers::Refusal;
use crate::store::{Lane, StoreError, StoreErrorKind};

/// The least time between two questions for the map.
const ASK_PAUSE: Duration = Duration::from_millis(100);

/// How long one node may be silent before the next one is asked as well.
const NEXT_NODE: Duration = Duration::from_millis(50);

/// How much longer than a question may take it is waited for; then its runtime is taken for dead.
const MARGIN: Duration = Duration::from_millis(100);

/// For how long a slot is renewed by itself after its node sent a renewal elsewhere.
const TROUBLE: Duration = Duration::from_secs(10);

/// A slot that nobody is known to serve.
const NOBODY: u16 = u16::MAX;

/// A node that was met.
pub(super) type Node = Arc<Member>;

#[derive(Debug)]
pub(super) struct Member {
    pub(super) address: Address,
    pub(super) store: RedisStore,
}

#[derive(Debug)]
pub(super) struct Topology {
    seeds: Seeds,
    connect_timeout: Duration,
    response_timeout: Duration,
    /// How many of a node's replicas must have a lock, and how long they may take.
    replica_acks: Option<(usize, Duration)>,
    ears: Arc<Ears>,
    state: Mutex<State>,
    /// Questions for the map from the users' runtimes, and from the manager's thread: none waits for the other.
    front: Mutex<Option<Question>>,
    back: Mutex<Option<Question>>,
}

struct State {
    /// Every node that was met and has not been forgotten.
    nodes: BTreeMap<Address, Node>,
    /// Those that serve slots.
    primaries: Vec<Node>,
    /// For each slot its place in `primaries`.
    owners: Box<[u16]>,
    /// Who was met only as a replica.
    replicas: Vec<Address>,
    /// The node that failed last: asked after all others.
    failing: Option<Address>,
    /// How often there was reason to doubt the map, and how many of these have been looked into.
    doubts: u64,
    settled: u64,
    /// The slots whose renewals were sent elsewhere, and when.
    troubled: BTreeMap<u16, Instant>,
}

/// A question for the map, and its answer once it is there.
#[derive(Clone, Debug)]
struct Question {
    since: Instant,
    answer: watch::Receiver<Option<Result<(), StoreError>>>,
}

impl Topology {
    pub(super) fn new(
        seeds: Seeds,
        connect_timeout: Duration,
        response_timeout: Duration,
        replica_acks: Option<(usize, Duration)>,
        ears: Arc<Ears>,
    ) -> Self {
        let state = State {
            nodes: BTreeMap::new(),
            primaries: Vec::new(),
            owners: vec![NOBODY; usize::from(SLOTS)].into(),
            replicas: Vec::new(),
            failing: None,
            doubts: 1,
            settled: 0,
            troubled: BTreeMap::new(),
        };
        let state = Mutex::new(state);
        let (front, back) = <(Mutex<_>, Mutex<_>)>::default();
        Self { seeds, connect_timeout, response_timeout, replica_acks, ears, state, front, back }
    }

    /// What of a limit the nodes themselves have; the rest is for their replicas.
    pub(super) fn own_share(&self, limit: Duration) -> Duration {
        if self.replica_acks.is_some() { limit.min(self.response_timeout) } else { limit }
    }

    /// Learns the map, and begins to connect to the nodes in it.
    pub(super) async fn ready(self: &Arc<Self>, limit: Duration) -> Result<(), StoreError> {
        self.refresh(Lane::Awaited, limit).await?;
        let primaries = self.lock().primaries.clone();
        for node in primaries {
            tokio::spawn(async move { node.store.ready(limit).await });
        }
        Ok(())
    }

    /// The node that serves a slot, as far as it is known.
    pub(super) fn owner(&self, slot: u16) -> Option<Node> {
        self.lock().owner(slot)
    }

    /// The node that serves a slot, looked for within `limit` if that is in doubt.
    pub(super) async fn node_of(self: &Arc<Self>, slot: u16, lane: Lane, limit: Duration) -> Result<Node, StoreError> {
        let (known, in_doubt) = {
            let state = self.lock();
            (state.owner(slot), state.doubts != state.settled)
        };
        // With somebody to go to, time must be left to go there.
        let limit = match known {
            Some(node) if !in_doubt => return Ok(node),
            Some(_) => limit / 2,
            None => limit,
        };
        let refreshed = self.refresh(lane, limit).await;
        match (self.owner(slot), refreshed) {
            (Some(node), _) => Ok(node),
            (None, Err(error)) => Err(error),
            (None, Ok(())) => Err(StoreError::new(
                StoreErrorKind::Unavailable,
                format!("no node of the cluster serves slot {slot}; look at `redis-cli --cluster check`"),
            )),
        }
    }

    /// The nodes that serve slots; while none is known, those of the URL.
    pub(super) async fn nodes(self: &Arc<Self>, limit: Duration) -> Vec<Node> {
        let in_doubt = {
            let state = self.lock();
            state.doubts != state.settled
        };
        if in_doubt {
            // Whoever cannot tell the map can be looked at all the same, and may tell why.
            let _ = self.refresh(Lane::Awaited, limit).await;
        }
        let primaries = self.lock().primaries.clone();
        if primaries.is_empty() { self.candidates(None) } else { primaries }
    }

    /// The node at an address that another one has named.
    pub(super) fn node_at(&self, address: &str, said_by: &Node) -> Option<Node> {
        let address = Address::read(address, &said_by.address)?;
        Some(self.meet(&mut self.lock(), &address))
    }

    /// A node says that the slot is served by another one.
    pub(super) fn moved(self: &Arc<Self>, slot: u16, to: &Node, lane: Lane) {
        self.lock().set_owner(slot, to);
        // The new one knows best.
        self.join_or_ask(lane, Some(to));
    }

    /// A node was of no use: the map may be out of date.
    pub(super) fn suspect(&self, node: &Node) {
        let mut state = self.lock();
        state.failing = Some(node.address.clone());
        state.doubts += 1;
    }

    /// Which slots are renewed together: those of one node, but for one that may be on its way.
    pub(super) fn group(&self, slot: u16) -> u32 {
        let state = self.lock();
        if state.troubled.get(&slot).is_some_and(|since| since.elapsed() < TROUBLE) {
            return u32::from(NOBODY) + 1 + u32::from(slot);
        }
        state.owners.get(usize::from(slot)).copied().unwrap_or(NOBODY).into()
    }

    /// A renewal was sent elsewhere.
    pub(super) fn note_trouble(&self, slot: u16) {
        let mut state = self.lock();
        state.troubled.retain(|_, since| since.elapsed() < TROUBLE);
        state.troubled.insert(slot, Instant::now());
    }

    /// Asks for the map, or waits for the answer to a question that is under way or has just been answered.
    async fn refresh(self: &Arc<Self>, lane: Lane, limit: Duration) -> Result<(), StoreError> {
        let mut answer = self.join_or_ask(lane, None);
        let silent = || {
            StoreError::new(StoreErrorKind::Unavailable, format!("no node of the cluster answered within {limit:?}"))
        };
        match timeout(limit, answer.wait_for(Option::is_some)).await {
            Ok(Ok(answer)) => answer.clone().unwrap_or_else(|| Err(silent())),
            // Dropped without an answer, or not answered.
            Ok(Err(_)) | Err(_) => Err(silent()),
        }
    }

    fn join_or_ask(
        self: &Arc<Self>,
        lane: Lane,
        first: Option<&Node>,
    ) -> watch::Receiver<Option<Result<(), StoreError>>> {
        let place = if lane == Lane::Back { &self.back } else { &self.front };
        let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
        let longest = self.connect_timeout.saturating_add(self.response_timeout);
        if let Some(question) = &*place {
            let age = question.since.elapsed();
            let is_answered = question.answer.borrow().is_some();
            // One that is dropped without an answer was asked on a runtime that has ended.
            let is_under_way = question.answer.has_changed().is_ok() && age < longest.saturating_add(MARGIN);
            if if is_answered { age < ASK_PAUSE } else { is_under_way } {
                return question.answer.clone();
            }
        }
        let (sender, answer) = watch::channel(None);
        *place = Some(Question { since: Instant::now(), answer: answer.clone() });
        drop(place);
        let (topology, lane_of_all, first) = (self.clone(), lane, first.cloned());
        tokio::spawn(async move {
            let learnt = timeout(longest, topology.learn(lane_of_all, first)).await.unwrap_or_else(|_| {
                Err(StoreError::new(StoreErrorKind::Unavailable, "no node of the cluster answered"))
            });
            // Nobody may be waiting.
            let _ = sender.send(Some(learnt));
        });
        answer
    }

    /// Asks one node after the other, not waiting long for any of them, until one tells the map.
    async fn learn(&self, lane: Lane, first: Option<Node>) -> Result<(), StoreError> {
        let doubts = self.lock().doubts;
        let mut candidates = self.candidates(first).into_iter();
        let mut asked = JoinSet::new();
        let mut problem: Option<StoreError> = None;
        loop {
            if let Some(node) = candidates.next() {
                asked.spawn(ask(node, lane, self.connect_timeout.saturating_add(self.response_timeout)));
            }
            let answer = if candidates.len() == 0 {
                asked.join_next().await
            } else {
                match timeout(NEXT_NODE, asked.join_next()).await {
                    Ok(answer) => answer,
                    Err(_elapsed) => continue,
                }
            };
            match answer {
                Some(Ok(Ok(shares))) => {
                    self.believe(&shares, doubts);
                    return Ok(());
                }
                // What can be mended is more worth knowing than who is silent.
                Some(Ok(Err(error))) => match &problem {
                    Some(known) if known.kind != StoreErrorKind::Unavailable => {}
                    _ => problem = Some(error),
                },
                // The runtime is ending.
                Some(Err(_)) => {}
                None if candidates.len() == 0 => {
                    let silent =
                        || StoreError::new(StoreErrorKind::Unavailable, "the cluster has no node that can be asked");
                    return Err(problem.unwrap_or_else(silent));
                }
                None => {}
            }
        }
    }

    /// Whom to ask for the map, in this order.
    fn candidates(&self, first: Option<Node>) -> Vec<Node> {
        let mut state = self.lock();
        let mut primaries: Vec<_> = state.primaries.iter().map(|node| node.address.clone()).collect();
        fastrand::shuffle(&mut primaries);
        let failing = state.failing.clone();
        primaries.sort_by_key(|address| Some(address) == failing.as_ref());
        let first = first.map(|node| node.address.clone());
        let mut all: Vec<Address> = Vec::new();
        for address in first.iter().chain(&primaries).chain(&self.seeds.addresses).chain(&state.replicas.clone()) {
            if !all.contains(address) {
                all.push(address.clone());
            }
        }
        all.iter().map(|address| self.meet(&mut state, address)).collect()
    }

    /// Takes an answer for the map.
    fn believe(&self, shares: &[Share], doubts: u64) {
        let mut state = self.lock();
        let mut replicas = Vec::new();
        let mut owners = Vec::new();
        for share in shares {
            owners.push((share.slots.clone(), self.meet(&mut state, &share.primary)));
            replicas.extend(share.replicas.iter().cloned());
        }
        (state.primaries, state.replicas) = (Vec::new(), replicas);
        state.owners.fill(NOBODY);
        for (slots, node) in owners {
            slots.for_each(|slot| state.set_owner(slot, &node));
        }
        state.settled = state.settled.max(doubts);
        state.forget_strangers(&self.seeds.addresses);
    }

    /// The node at an address; connects to nothing.
    fn meet(&self, state: &mut State, address: &Address) -> Node {
        let known = state.nodes.entry(address.clone());
        let node = known.or_insert_with(|| {
            let target = self.seeds.node(address);
            let (connect_timeout, response_timeout) = (self.connect_timeout, self.response_timeout);
            let store =
                RedisStore::member(target, connect_timeout, response_timeout, self.ears.clone(), self.replica_acks);
            Arc::new(Member { address: address.clone(), store })
        });
        node.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs under the lock, so a poisoned state is still whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn owner(&self, slot: u16) -> Option<Node> {
        let place = *self.owners.get(usize::from(slot))?;
        self.primaries.get(usize::from(place)).cloned()
    }

    fn set_owner(&mut self, slot: u16, node: &Node) {
        let known = self.primaries.iter().rposition(|primary| Arc::ptr_eq(primary, node));
        let place = known.unwrap_or_else(|| {
            self.primaries.push(node.clone());
            self.primaries.len() - 1
        });
        if let Some(owner) = self.owners.get_mut(usize::from(slot)) {
            *owner = u16::try_from(place).unwrap_or(NOBODY);
        }
    }

    /// Drops the connections to nodes that the cluster does not name any more.
    fn forget_strangers(&mut self, seeds: &[Address]) {
        let Self { nodes, primaries, replicas, .. } = self;
        nodes.retain(|address, node| {
            seeds.contains(address)
                || replicas.contains(address)
                || primaries.iter().any(|primary| Arc::ptr_eq(primary, node))
        });
    }
}

impl fmt::Debug for State {
    /// Without the table of all slots.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("primaries", &self.primaries).finish_non_exhaustive()
    }
}

/// Asks one node for the map. One that was reset knows none, whatever the others know.
async fn ask(node: Node, lane: Lane, limit: Duration) -> Result<Vec<Share>, StoreError> {
    let address = &node.address;
    let mut command = redis::cmd("CLUSTER");
    command.arg("SLOTS");
    let answer = node.store.connection(lane).send(&command, limit).await;
    let config = |text: String| StoreError::new(StoreErrorKind::Config, text);
    match answer {
        Ok(answer) => match shares(&answer, address) {
            Some(shares) if shares.is_empty() => Err(StoreError::new(
                StoreErrorKind::Unavailable,
                format!(
                    "{address} knows of no slots that are served; make it part of a cluster with `redis-cli --cluster create` or `add-node`"
                ),
            )),
            Some(shares) => Ok(shares),
            None => Err(config(format!("{address} does not answer CLUSTER SLOTS as a node of a Redis Cluster does"))),
        },
        Err(Refusal::Failed(error)) if error.text.contains("cluster support disabled") => {
            Err(config(format!("the server at {address} is not a node of a Redis Cluster; write `redis://{address}`")))
        }
        Err(Refusal::Failed(error)) => Err(error),
        Err(Refusal::NoScript) => Err(config(format!("{address} does not know CLUSTER SLOTS"))),
    }
}

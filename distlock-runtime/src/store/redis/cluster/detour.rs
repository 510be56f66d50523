//! Finding the way to the node of a slot: what nodes say that do not serve it, and what follows.
//!
//! A node that sends a command elsewhere, or says that it is not the time, has not executed it; so the command is sent on
//! within its own limit, with nothing to be unsure of. A command that was not answered is not repeated here: what
//! that means is the engine's business.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::topology::{Node, Topology};
use crate::store::{Lane, StoreError, StoreErrorKind};

/// The most nodes that a command is sent on to; more means that they contradict each other.
const MOST_DETOURS: u32 = 8;

/// Bounds of the pause before a node is asked again that said "not now", in milliseconds.
const PAUSE: std::ops::Range<u64> = 10..40;

/// What a node says that did not execute a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Detour {
    /// The slot is another node's.
    Moved(String),
    /// The slot is on its way to another node, and the keys are there already, or nowhere.
    Ask(String),
    /// The slot is on its way, and some of the keys are here and some there.
    TryAgain,
    /// Some slots are served by nobody, or this node does not know by whom.
    Down,
}

impl Detour {
    /// Reads an error's code, and its detail `<slot> <host>:<port>`.
    pub(crate) fn read(code: &str, detail: &str) -> Option<Self> {
        let address = || detail.split_ascii_whitespace().nth(1).map(str::to_owned);
        match code {
            "MOVED" => address().map(Self::Moved),
            "ASK" => address().map(Self::Ask),
            "TRYAGAIN" => Some(Self::TryAgain),
            "CLUSTERDOWN" => Some(Self::Down),
            // The slot left while a script was under way.
            "ERR" if detail.contains("non local key") => Some(Self::Down),
            _ => None,
        }
    }
}

/// One command on its way.
#[derive(Debug)]
pub(super) struct Way<'a> {
    topology: &'a Arc<Topology>,
    slot: u16,
    lane: Lane,
    begun: Instant,
    limit: Duration,
    detours: u32,
    /// The node to be asked next out of turn.
    ask: Option<Node>,
}

/// What to do next.
#[derive(Debug)]
pub(super) struct Leg {
    pub(super) node: Node,
    /// The node must be told that it was asked out of turn.
    pub(super) asking: bool,
    /// How long it may take.
    pub(super) limit: Duration,
}

impl<'a> Way<'a> {
    pub(super) fn new(topology: &'a Arc<Topology>, slot: u16, lane: Lane, limit: Duration) -> Self {
        Self { topology, slot, lane, begun: Instant::now(), limit, detours: 0, ask: None }
    }

    /// Which node to send the command to.
    pub(super) async fn next(&mut self) -> Result<Leg, StoreError> {
        let asked = self.ask.take();
        let asking = asked.is_some();
        let node = match asked {
            Some(node) => node,
            None => self.topology.node_of(self.slot, self.lane, self.left()).await?,
        };
        Ok(Leg { node, asking, limit: self.left() })
    }

    /// What an error means. `Err`: the way ends here.
    pub(super) async fn turn(&mut self, leg: &Leg, error: StoreError) -> Result<(), StoreError> {
        let Some(detour) = error.detour.as_deref() else {
            if error.kind == StoreErrorKind::Unavailable {
                self.topology.suspect(&leg.node);
            }
            return Err(error);
        };
        match detour {
            Detour::Moved(to) | Detour::Ask(to) if self.detours < MOST_DETOURS => {
                // Rests are none: a slot may be on its way for as long as a caller has time.
                self.detours += 1;
                let Some(node) = self.topology.node_at(to, &leg.node) else { return Err(self.lost(&error)) };
                match detour {
                    Detour::Moved(_) => self.topology.moved(self.slot, &node, self.lane),
                    _ => self.ask = Some(node),
                }
                Ok(())
            }
            Detour::Moved(_) | Detour::Ask(_) => {
                self.topology.suspect(&leg.node);
                Err(self.lost(&error))
            }
            Detour::TryAgain => self.pause(error).await,
            Detour::Down => {
                self.topology.suspect(&leg.node);
                self.pause(error).await
            }
        }
    }

    /// [`turn`](Self::turn) for a command on several keys: a node that a slot is on its way to takes none of those before all
    /// keys of the slot have arrived, so nothing is won by asking it.
    pub(super) async fn turn_with_several(&mut self, leg: &Leg, error: StoreError) -> Result<(), StoreError> {
        match error.detour.as_deref() {
            Some(Detour::Ask(_)) => self.pause(error).await,
            _ => self.turn(leg, error).await,
        }
    }

    /// Rests before the next try where a caller waits; the background has pauses of its own.
    async fn pause(&self, error: StoreError) -> Result<(), StoreError> {
        let pause = Duration::from_millis(fastrand::u64(PAUSE));
        if self.lane != Lane::Awaited || pause >= self.left() {
            return Err(self.lost(&error));
        }
        tokio::time::sleep(pause).await;
        Ok(())
    }

    fn left(&self) -> Duration {
        self.limit.saturating_sub(self.begun.elapsed())
    }

    /// Where the way ends without an answer.
    fn lost(&self, error: &StoreError) -> StoreError {
        let text = match error.detour.as_deref() {
            Some(Detour::Down) => "the cluster does not serve all of its slots (CLUSTERDOWN), as while a failed node is replaced; if it stays so, look at `redis-cli --cluster check`".to_owned(),
            _ => format!(
                "slot {} of the cluster is on its way from one node to another; if it stays so, look at `redis-cli --cluster check`",
                self.slot
            ),
        };
        StoreError::new(StoreErrorKind::Unavailable, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::cluster::seeds::Seeds;
    use crate::store::redis::target::Access;

    #[tokio::test(start_paused = true)]
    async fn rests_are_no_detours() {
        const SECOND: Duration = Duration::from_secs(1);
        // Nobody is there, and nobody needs to be.
        let seeds = Seeds::read("redis://127.0.0.1:1", Access::default()).unwrap();
        let topology = Arc::new(Topology::new(seeds, SECOND, SECOND, None, Arc::default()));
        let node = topology.nodes(Duration::ZERO).await.remove(0);
        let mut way = Way::new(&topology, 7, Lane::Awaited, SECOND * 60);
        let leg = Leg { node, asking: false, limit: SECOND };
        let said = |detour| {
            let error = StoreError::new(StoreErrorKind::Unavailable, "");
            StoreError { detour: Some(Box::new(detour)), ..error }
        };
        let moved = || said(Detour::Moved("127.0.0.1:2".to_owned()));
        for _ in 0..100 {
            way.turn(&leg, said(Detour::TryAgain)).await.unwrap();
            way.turn(&leg, said(Detour::Down)).await.unwrap();
        }
        // Nodes that contradict each other are another thing.
        for _ in 0..MOST_DETOURS {
            way.turn(&leg, moved()).await.unwrap();
        }
        way.turn(&leg, moved()).await.unwrap_err();
    }

    #[test]
    fn what_a_node_says_is_told_from_what_a_server_says() {
        assert_eq!(Detour::read("MOVED", "3999 127.0.0.1:6381"), Some(Detour::Moved("127.0.0.1:6381".to_owned())));
        assert_eq!(Detour::read("ASK", "3999 :6381"), Some(Detour::Ask(":6381".to_owned())));
        assert_eq!(Detour::read("TRYAGAIN", "Multiple keys request during rehashing of slot"), Some(Detour::TryAgain));
        assert_eq!(Detour::read("CLUSTERDOWN", "Hash slot not served"), Some(Detour::Down));
        let inside = "Script attempted to access a non local key in a cluster node";
        assert_eq!(Detour::read("ERR", inside), Some(Detour::Down));
        assert_eq!(Detour::read("ERR", "unknown command"), None);
        assert_eq!(Detour::read("MOVED", ""), None);
    }
}

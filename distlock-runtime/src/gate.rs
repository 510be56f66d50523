//! One FIFO queue per key per process.
//!
//! Only the task that has the [`Turn`] of a key talks to the server about it, so a hot key costs the process one waiter
//! however many tasks want it. The turn is handed over in order; a queued task that has gone away is passed over.

use std::collections::hash_map::Entry as Slot;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::error::{LockError, Occupant};
use crate::grant::Grant;
use crate::hand_on::Inheritance;
use crate::opaque::Opaque;

/// The queues of one manager.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    keys: Opaque<Mutex<HashMap<Arc<str>, Queue>>>,
}

#[derive(Debug)]
struct Queue {
    waiting: VecDeque<Waiter>,
    news: News,
}

#[derive(Debug)]
struct Waiter {
    sender: oneshot::Sender<Turn>,
    /// The ttl of a lease that could begin on an inherited key. One that needs more keys than this cannot: it would hold
    /// the one while it waits for the others.
    heir: Option<Duration>,
}

/// What the task that has the turn knows; it lets the others answer truthfully without asking the server.
#[derive(Clone, Debug, Default)]
pub(crate) enum News {
    /// Nothing yet: it asks the server for the first time.
    #[default]
    Asking,
    /// A task of this process had the key until now, and the next one is asking.
    Passed,
    /// Another process holds the key.
    HeldElsewhere(Occupant),
    /// The server could not be asked.
    Failing(LockError),
    /// It has the lease.
    HeldHere(Weak<Grant>),
}

/// What a task finds at the gate.
pub(crate) enum Entry {
    /// Nobody was there: ask the server.
    Turn(Turn),
    /// Others are there: the turn comes in order.
    Queued(oneshot::Receiver<Turn>),
}

impl Gate {
    /// Asks for the turn. `heir`: the ttl of a lease that could begin on an inherited key.
    pub(crate) fn enter(self: &Arc<Self>, key: &Arc<str>, heir: Option<Duration>) -> Entry {
        match self.keys().entry(key.clone()) {
            Slot::Vacant(slot) => {
                slot.insert(Queue { waiting: VecDeque::new(), news: News::default() });
                Entry::Turn(Turn::new(self, key))
            }
            Slot::Occupied(mut slot) => {
                let (sender, receiver) = oneshot::channel();
                let waiting = &mut slot.get_mut().waiting;
                // Keeps a queue of impatient callers from growing behind a long hold.
                if waiting.len() == waiting.capacity() {
                    waiting.retain(|waiter| !waiter.sender.is_closed());
                }
                waiting.push_back(Waiter { sender, heir });
                Entry::Queued(receiver)
            }
        }
    }

    /// Takes the turn only if nobody is there; otherwise says what is known, and whether others wait for the turn.
    pub(crate) fn try_enter(self: &Arc<Self>, key: &Arc<str>) -> Result<Turn, (News, bool)> {
        match self.keys().entry(key.clone()) {
            Slot::Vacant(slot) => {
                slot.insert(Queue { waiting: VecDeque::new(), news: News::default() });
                Ok(Turn::new(self, key))
            }
            Slot::Occupied(slot) => {
                let Queue { waiting, news } = slot.get();
                Err((news.clone(), waiting.iter().any(|waiter| !waiter.sender.is_closed())))
            }
        }
    }

    pub(crate) fn news(&self, key: &str) -> News {
        self.keys().get(key).map(|queue| queue.news.clone()).unwrap_or_default()
    }

    fn keys(&self) -> std::sync::MutexGuard<'_, HashMap<Arc<str>, Queue>> {
        // Nothing that can panic runs under the lock, so a poisoned map is still whole.
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many wait for the turn; some of them may have gone away.
    pub(crate) fn waiting(&self, key: &str) -> usize {
        self.keys().get(key).map_or(0, |queue| queue.waiting.len())
    }

    /// The next in line, or the end of the queue.
    fn next(&self, key: &str) -> Option<Waiter> {
        let mut keys = self.keys();
        let queue = keys.get_mut(key)?;
        let next = queue.waiting.pop_front();
        match next {
            // Whatever else was known of the key is still the last that is known.
            Some(_) if matches!(queue.news, News::HeldHere(_)) => queue.news = News::Passed,
            Some(_) => {}
            None => {
                keys.remove(key);
            }
        }
        next
    }
}

/// The right to talk to the server about one key, or about several. Passed on, key by key, when dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    /// `None` once it was passed on.
    gate: Option<Arc<Gate>>,
    key: Arc<str>,
    /// Those for the other keys of the same lock.
    more: Vec<Turn>,
    /// The key itself, from the lease before.
    inheritance: Option<Inheritance>,
}

impl Turn {
    fn new(gate: &Arc<Gate>, key: &Arc<str>) -> Self {
        Self { gate: Some(gate.clone()), key: key.clone(), more: Vec::new(), inheritance: None }
    }

    /// The ttl that the next in line would have, if it could inherit the key.
    pub(crate) fn heir(&self) -> Option<Duration> {
        let gate = self.gate.as_ref().filter(|_| self.more.is_empty())?;
        let mut keys = gate.keys();
        let waiting = &mut keys.get_mut(&self.key)?.waiting;
        while waiting.front().is_some_and(|waiter| waiter.sender.is_closed()) {
            waiting.pop_front();
        }
        waiting.front()?.heir
    }

    /// Passes the turn on, together with the key.
    pub(crate) fn bequeath(mut self, inheritance: Inheritance) {
        self.inheritance = Some(inheritance);
    }

    /// What came with the turn.
    pub(crate) fn inheritance(&mut self) -> Option<Inheritance> {
        self.inheritance.take()
    }

    /// Keeps the turn for another key together with this one.
    pub(crate) fn join(&mut self, other: Self) {
        self.more.push(other);
    }

    pub(crate) fn tell(&self, news: News) {
        self.more.iter().for_each(|other| other.tell(news.clone()));
        if let Some(gate) = &self.gate
            && let Some(queue) = gate.keys().get_mut(&self.key)
        {
            queue.news = news;
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(gate) = self.gate.take() else { return };
        let mut inheritance = self.inheritance.take();
        while let Some(Waiter { sender, heir }) = gate.next(&self.key) {
            if heir.is_none() {
                // Given back before the next one asks for it.
                inheritance = None;
            }
            let mut turn = Self::new(&gate, &self.key);
            turn.inheritance = inheritance.take();
            match sender.send(turn) {
                Ok(()) => return,
                // That waiter has gone; the turn came back and must not pass itself on from in here.
                Err(mut turn) => {
                    turn.gate = None;
                    inheritance = turn.inheritance.take();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate() -> (Arc<Gate>, Arc<str>) {
        (Arc::default(), "k".into())
    }

    fn queued(gate: &Arc<Gate>, key: &Arc<str>) -> oneshot::Receiver<Turn> {
        match gate.enter(key, None) {
            Entry::Queued(receiver) => receiver,
            Entry::Turn(_) => panic!("nobody was in front"),
        }
    }

    fn first(gate: &Arc<Gate>, key: &Arc<str>) -> Turn {
        match gate.enter(key, None) {
            Entry::Turn(turn) => turn,
            Entry::Queued(_) => panic!("somebody was in front"),
        }
    }

    #[test]
    fn the_turn_goes_round_in_order_and_passes_over_the_gone() {
        let (gate, key) = gate();
        let turn = first(&gate, &key);
        let (mut a, gone, mut b) = (queued(&gate, &key), queued(&gate, &key), queued(&gate, &key));
        drop(gone);
        drop(turn);
        let turn = a.try_recv().unwrap();
        assert!(b.try_recv().is_err());
        drop(turn);
        drop(b.try_recv().unwrap());
        assert!(gate.keys().is_empty());
    }

    #[test]
    fn a_turn_that_was_sent_and_never_taken_is_not_lost() {
        let (gate, key) = gate();
        let turn = first(&gate, &key);
        let (receiver, mut behind) = (queued(&gate, &key), queued(&gate, &key));
        drop(turn);
        drop(receiver);
        assert!(behind.try_recv().is_ok());
    }

    #[test]
    fn waiters_that_gave_up_do_not_pile_up() {
        let (gate, key) = gate();
        let _turn = first(&gate, &key);
        for _ in 0..10_000 {
            drop(queued(&gate, &key));
        }
        assert!(gate.keys()[&key].waiting.len() < 100);
    }
}

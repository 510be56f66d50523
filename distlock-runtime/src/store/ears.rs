//! Who waits in this process for which key, so that a wake-up for a key finds its waiters.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::key::Names;

/// The waiters of one store.
#[derive(Debug, Default)]
pub(crate) struct Ears(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// In order, so that under a seed all are woken in the same order in each run.
    waiters: BTreeMap<Arc<str>, Vec<Arc<Notify>>>,
    /// How many wake-ups came for keys that nobody listened for.
    unheard: u64,
}

/// A moment between wake-ups. Whoever listens from here on has missed nothing, although most never need to listen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark(u64);

impl Ears {
    pub(crate) fn mark(&self) -> Mark {
        Mark(self.lock().unheard)
    }

    pub(crate) fn listen(self: &Arc<Self>, names: &Arc<Names>, since: Mark) -> Ear {
        let told = Arc::new(Notify::new());
        let mut state = self.lock();
        for name in names.iter() {
            state.waiters.entry(name.wire.clone()).or_default().push(told.clone());
        }
        if state.unheard != since.0 {
            told.notify_one();
        }
        drop(state);
        Ear { ears: self.clone(), names: names.clone(), told }
    }

    /// Wakes the waiters for the key. One that is not waiting right now finds it out when it does. `false`: there is none.
    pub(crate) fn tell(&self, wire: &str) -> bool {
        let mut state = self.lock();
        match state.waiters.get(wire) {
            Some(waiters) => {
                waiters.iter().for_each(|told| told.notify_one());
                true
            }
            None => {
                state.unheard += 1;
                false
            }
        }
    }

    /// Wakes every waiter.
    pub(crate) fn tell_all(&self) {
        let mut state = self.lock();
        state.unheard += 1;
        state.waiters.values().flatten().for_each(|told| told.notify_one());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs under the lock, so a poisoned state is still whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Listens for the keys of one waiter until it is dropped.
#[derive(Debug)]
pub(crate) struct Ear {
    ears: Arc<Ears>,
    names: Arc<Names>,
    told: Arc<Notify>,
}

impl Ear {
    /// Completes when one of the keys may be free; at once if that was told since the last time.
    pub(crate) async fn told(&self) {
        self.told.notified().await;
    }

    pub(crate) fn names(&self) -> &Names {
        &self.names
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        let waiters_of = &mut self.ears.lock().waiters;
        for name in self.names.iter() {
            if let Some(waiters) = waiters_of.get_mut(&name.wire) {
                waiters.retain(|told| !Arc::ptr_eq(told, &self.told));
                if waiters.is_empty() {
                    waiters_of.remove(&name.wire);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{Keys, Namespace};

    fn names(keys: &[&str]) -> Arc<Names> {
        let keys = Keys::several(keys.iter().map(|key| Ok(Keys::one((*key).to_owned()))));
        Namespace::default().names(&keys.unwrap()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiter_hears_of_each_of_its_keys_and_of_what_was_told_before_it_waited() {
        let ears = Arc::new(Ears::default());
        let begun = ears.mark();
        let (both, other) = (ears.listen(&names(&["a", "b"]), begun), ears.listen(&names(&["c"]), begun));
        for key in ["distlock:a", "distlock:b"] {
            assert!(ears.tell(key));
            both.told().await;
        }
        let silent = tokio::time::timeout(std::time::Duration::from_secs(1), other.told()).await;
        assert!(silent.is_err());
        ears.tell_all();
        other.told().await;
        drop((both, other));
        assert!(!ears.tell("distlock:a"));
        // What came before it listened, and after its mark, is not missed.
        ears.listen(&names(&["a"]), begun).told().await;
        assert!(ears.lock().waiters.is_empty());
    }
}

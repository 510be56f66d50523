//! Who waits in this process for which key, so that a wake-up for a key finds its waiters.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::key::Names;

/// The waiters of one store. In order, so that under a seed all are woken in the same order in each run.
#[derive(Debug, Default)]
pub(crate) struct Ears(Mutex<BTreeMap<Arc<str>, Vec<Arc<Notify>>>>);

impl Ears {
    pub(crate) fn listen(self: &Arc<Self>, names: &Arc<Names>) -> Ear {
        let told = Arc::new(Notify::new());
        let mut ears = self.lock();
        for name in names.iter() {
            ears.entry(name.wire.clone()).or_default().push(told.clone());
        }
        drop(ears);
        Ear { ears: self.clone(), names: names.clone(), told }
    }

    /// Wakes the waiters for the key. One that is not waiting right now finds it out when it does. `false`: there is none.
    pub(crate) fn tell(&self, wire: &str) -> bool {
        let ears = self.lock();
        let waiters = ears.get(wire);
        waiters.into_iter().flatten().for_each(|told| told.notify_one());
        waiters.is_some()
    }

    /// Wakes every waiter.
    pub(crate) fn tell_all(&self) {
        self.lock().values().flatten().for_each(|told| told.notify_one());
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Vec<Arc<Notify>>>> {
        // Nothing that can panic runs under the lock, so a poisoned map is still whole.
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
        let mut ears = self.ears.lock();
        for name in self.names.iter() {
            if let Some(waiters) = ears.get_mut(&name.wire) {
                waiters.retain(|told| !Arc::ptr_eq(told, &self.told));
                if waiters.is_empty() {
                    ears.remove(&name.wire);
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
        let (both, other) = (ears.listen(&names(&["a", "b"])), ears.listen(&names(&["c"])));
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
        assert!(ears.lock().is_empty());
    }
}

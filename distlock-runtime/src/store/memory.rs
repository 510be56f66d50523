//! The in-memory store: real exclusion between the tasks of one process, for tests and first steps.
//!
//! Every operation happens at once and exactly once, so there is no late copy to bury and nothing to retry. Time is
//! tokio's, so a test under paused time sees exact expiry.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::Notify;

use super::{Acquire, Acquired, BoxFuture, Lane, LockStore, Release, Released, Renewal, Renewed, StoreError, Token};
use crate::clock::{Clock, Moment};
use crate::error::{Holder, Occupant};
use crate::key::LockName;

#[derive(Debug)]
pub(crate) struct MemoryStore {
    clock: Clock,
    state: Mutex<State>,
    /// Told of every key that becomes free.
    freed: Notify,
}

#[derive(Debug, Default)]
struct State {
    keys: HashMap<Arc<str>, Entry>,
    last_fencing_token: u64,
}

#[derive(Debug)]
struct Entry {
    /// `None`: kept beyond its lease, owned by nobody.
    token: Option<Token>,
    fencing_token: u64,
    expires: Moment,
    since: Moment,
    holder: Holder,
}

impl MemoryStore {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, state: Mutex::default(), freed: Notify::new() }
    }

    fn acquire_now(&self, request: &Acquire) -> Acquired {
        let now = self.clock.now();
        let expires = now.after(request.expiry);
        self.with(|state| {
            if let Some(entry) = state.live(&request.name.wire, now) {
                if entry.token != Some(request.token) {
                    return Acquired::Held(Occupant {
                        holder: Some(entry.holder.clone()),
                        retry_after: Some(entry.expires.since(now)),
                        held_for: Some(now.since(entry.since)),
                    });
                }
                entry.expires = entry.expires.max(expires);
                return Acquired::Granted { fencing_token: entry.fencing_token };
            }
            let fencing_token = state.next_fencing_token();
            let holder = described(&request.holder);
            let entry = Entry { token: Some(request.token), fencing_token, expires, since: now, holder };
            state.keys.insert(request.name.wire.clone(), entry);
            Acquired::Granted { fencing_token }
        })
    }

    fn renew_now(&self, renewal: &Renewal) -> Renewed {
        let now = self.clock.now();
        self.with(|state| match state.live(&renewal.name.wire, now) {
            None => Renewed::Absent,
            Some(entry) if entry.token == Some(renewal.token) => {
                entry.expires = entry.expires.max(now.after(renewal.expiry));
                Renewed::Yes
            }
            Some(_) => Renewed::Stolen,
        })
    }

    fn release_now(&self, request: &Release) -> Released {
        let now = self.clock.now();
        let released = self.with(|state| {
            let Some(entry) = state.live(&request.name.wire, now) else { return Released::Absent };
            if entry.token != Some(request.token) {
                return Released::Stolen;
            }
            match request.keep {
                Some(keep) => {
                    entry.token = None;
                    entry.expires = now.after(keep);
                }
                None => {
                    state.keys.remove(&request.name.wire);
                }
            }
            Released::Deleted
        });
        if released == Released::Deleted {
            self.freed.notify_waiters();
        }
        released
    }

    fn with<R>(&self, work: impl FnOnce(&mut State) -> R) -> R {
        // No code that can panic runs under the lock, so a poisoned state is still whole.
        work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl State {
    /// The entry under `key`, unless its time is over.
    fn live(&mut self, key: &Arc<str>, now: Moment) -> Option<&mut Entry> {
        if self.keys.get(key).is_some_and(|entry| entry.expires <= now) {
            self.keys.remove(key);
        }
        self.keys.get_mut(key)
    }

    /// Above every earlier one, and near the microseconds that a server would give.
    fn next_fencing_token(&mut self) -> u64 {
        let micros = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros());
        let micros = u64::try_from(micros).unwrap_or(0);
        self.last_fencing_token = micros.max(self.last_fencing_token.saturating_add(1));
        self.last_fencing_token
    }
}

/// Reads back `<host>/<pid> <function>`.
fn described(text: &str) -> Holder {
    let (place, function) = text.split_once(' ').unwrap_or((text, "-"));
    let (host, pid) = place.rsplit_once('/').unwrap_or((place, "0"));
    Holder::new(host, pid.parse().unwrap_or(0), function, SystemTime::now())
}

impl LockStore for MemoryStore {
    fn acquire<'a>(&'a self, request: &'a Acquire, _limit: Duration) -> BoxFuture<'a, Result<Acquired, StoreError>> {
        Box::pin(async move { Ok(self.acquire_now(request)) })
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal], _limit: Duration) -> BoxFuture<'a, Result<Vec<Renewed>, StoreError>> {
        Box::pin(async move { Ok(batch.iter().map(|renewal| self.renew_now(renewal)).collect()) })
    }

    fn release<'a>(
        &'a self,
        request: &'a Release,
        _lane: Lane,
        _limit: Duration,
    ) -> BoxFuture<'a, Result<Released, StoreError>> {
        Box::pin(async move { Ok(self.release_now(request)) })
    }

    fn wake_up<'a>(&'a self, name: &'a LockName, at_most: Duration) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            // Listen first, then look: a key freed in between is not missed.
            freed.as_mut().enable();
            let now = self.clock.now();
            let Some(expires) = self.with(|state| state.live(&name.wire, now).map(|entry| entry.expires)) else {
                return;
            };
            let at = expires.min(now.after(at_most));
            tokio::select! {
                biased;
                () = freed => {}
                () = self.clock.sleep_until(at) => {}
            }
        })
    }
}

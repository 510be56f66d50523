//! The in-memory store: real exclusion between the tasks of one process, for tests and first steps.
//!
//! Every operation happens at once and exactly once, so there is no late copy to bury and nothing to retry. Time is
//! tokio's, so a test under paused time sees exact expiry.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::ears::{Ear, Ears, Mark};
use super::{
    Acquire, Acquired, BoxFuture, FencingTokens, Lane, LockStore, Release, Released, Renewal, Renewed, StoreError,
    Token,
};
use crate::clock::{Clock, Moment};
use crate::error::{Holder, Occupant};
use crate::key::Names;

#[derive(Debug)]
pub(crate) struct MemoryStore {
    clock: Clock,
    state: Mutex<State>,
    /// Told of every key that becomes free.
    ears: Arc<Ears>,
}

#[derive(Debug, Default)]
struct State {
    keys: HashMap<Arc<str>, Entry>,
    /// At how many keys the expired ones are swept out next.
    sweep_at: usize,
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
        Self { clock, state: Mutex::default(), ears: Arc::default() }
    }

    fn acquire_now(&self, request: &Acquire) -> Acquired {
        let now = self.clock.now();
        self.with(|state| {
            for (place, name) in request.names.iter().enumerate() {
                if let Some(entry) = state.live(&name.wire, now)
                    && entry.token != Some(request.token)
                {
                    let occupant = Occupant {
                        holder: Some(entry.holder.clone()),
                        retry_after: Some(entry.expires.since(now)),
                        held_for: Some(now.since(entry.since)),
                    };
                    return Acquired::Held { place, occupant, ticket: None, leftovers: false };
                }
            }
            let fencing_tokens: Vec<u64> =
                request.names.iter().map(|name| state.take(&name.wire, request, now)).collect();
            state.sweep(now);
            // There is at least one key, so there is at least one token.
            let none = FencingTokens { first: 0, more: Box::default() };
            let fencing_tokens = FencingTokens::new(fencing_tokens.into_iter()).unwrap_or(none);
            Acquired::Granted { fencing_tokens, reserved: false, rest: None }
        })
    }

    fn renew_now(&self, renewal: &Renewal) -> Renewed {
        let now = self.clock.now();
        self.with(|state| match state.live(&renewal.wire, now) {
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
        let mut freed = Vec::new();
        let released = self.with(|state| {
            let mut all = Released::Deleted;
            for name in request.names.iter() {
                let Some(entry) = state.live(&name.wire, now) else {
                    all = if all == Released::Deleted { Released::Absent } else { all };
                    continue;
                };
                if entry.token != Some(request.token) {
                    all = Released::Stolen;
                    continue;
                }
                match request.keep {
                    Some(keep) => {
                        entry.token = None;
                        entry.expires = now.after(keep);
                    }
                    None => {
                        state.keys.remove(&name.wire);
                        freed.push(&name.wire);
                    }
                }
            }
            all
        });
        for wire in freed {
            self.ears.tell(wire);
        }
        released
    }

    /// When the last of the keys that are taken now expires by itself; `None` if all are free.
    fn taken_until(&self, names: &Names) -> Option<Moment> {
        let now = self.clock.now();
        self.with(|state| names.iter().filter_map(|name| Some(state.live(&name.wire, now)?.expires)).max())
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

    /// Gives a key that is free, or the token's own, to the token.
    fn take(&mut self, wire: &Arc<str>, request: &Acquire, now: Moment) -> u64 {
        let expires = now.after(request.expiry);
        if let Some(own) = self.keys.get_mut(wire) {
            own.expires = own.expires.max(expires);
            return own.fencing_token;
        }
        let fencing_token = self.next_fencing_token();
        let holder = described(&request.holder.to_string(), fencing_token);
        let entry = Entry { token: Some(request.token), fencing_token, expires, since: now, holder };
        self.keys.insert(wire.clone(), entry);
        fencing_token
    }

    /// Drops what has expired and was never asked for again, at a cost that each insertion pays a little of.
    fn sweep(&mut self, now: Moment) {
        const FEW: usize = 64;
        if self.keys.len() > self.sweep_at.max(FEW) {
            self.keys.retain(|_, entry| entry.expires > now);
            self.sweep_at = self.keys.len() * 2;
        }
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
fn described(text: &str, fencing_token: u64) -> Holder {
    let (place, function) = text.split_once(' ').unwrap_or((text, "-"));
    let (host, pid) = place.rsplit_once('/').unwrap_or((place, "0"));
    Holder::new(host, pid.parse().unwrap_or(0), function, SystemTime::now(), Some(fencing_token))
}

impl LockStore for MemoryStore {
    fn acquire<'a>(&'a self, request: &'a Acquire, _limit: Duration) -> BoxFuture<'a, Result<Acquired, StoreError>> {
        Box::pin(async move { Ok(self.acquire_now(request)) })
    }

    fn renew<'a>(
        &'a self,
        batch: &'a [Renewal],
        _lane: Lane,
        _limit: Duration,
    ) -> BoxFuture<'a, Result<Vec<Renewed>, StoreError>> {
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

    fn hands_on(&self) -> bool {
        false
    }

    fn mark(&self) -> Mark {
        self.ears.mark()
    }

    fn listen(&self, names: &Arc<Names>, since: Mark) -> Ear {
        self.ears.listen(names, since)
    }

    fn wake_up<'a>(&'a self, ear: &'a Ear, at_most: Duration) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let Some(expires) = self.taken_until(ear.names()) else { return };
            let at = expires.min(self.clock.now().after(at_most));
            tokio::select! {
                biased;
                () = ear.told() => {}
                () = self.clock.sleep_until(at) => {}
            }
        })
    }
}

//! The watchdog of one manager: renews leases that are due, and declares lost those whose deadline has passed.
//!
//! It keeps every live lease in order of its next event. The loop only looks at clocks; renewals are sent by tasks of
//! their own, in batches, so a hanging connection delays neither the deadlines nor other batches. On a real server the
//! loop runs on the manager's own thread and needs nothing from the user's runtime; in memory it is a task that ends
//! when no lease is left.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::{Clock, Moment};
use crate::events;
use crate::grant::Grant;
use crate::opaque::Opaque;
use crate::settings::Span;
use crate::store::{BoxFuture, Lane, LockStore};

/// The most keys that one script renews, unless a single lease has more.
const BATCH: usize = 100;

/// How late the loop may come before it says so.
const LATE: Duration = Duration::from_millis(100);

/// Bounds of the pause before a renewal without an answer is tried again.
const RETRY: std::ops::RangeInclusive<Duration> = Duration::from_millis(3)..=Duration::from_secs(1);

/// Where the loop runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    /// On the manager's own thread, for as long as the manager lives.
    Thread,
    /// On the runtime of whoever takes a lease, for as long as there are leases.
    Task,
}

#[derive(Debug)]
pub(crate) struct Watchdog {
    clock: Clock,
    store: Arc<dyn LockStore>,
    try_limit: Duration,
    home: Home,
    next_id: AtomicU64,
    /// The loop of a [`Home::Task`] is under way.
    running: AtomicBool,
    state: Opaque<Mutex<State>>,
    /// Told when an event comes before the one the loop sleeps for.
    nudge: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Every live lease, by id, under its next event.
    events: BTreeMap<(Moment, u64), Watched>,
    /// Where in `events` a lease stands.
    places: HashMap<u64, Moment>,
    /// The event the loop sleeps for.
    sleeping_until: Option<Moment>,
}

#[derive(Clone, Debug)]
struct Watched {
    grant: Arc<Grant>,
    /// `None` while a renewal is under way, and for leases that are not renewed.
    renew_at: Option<Moment>,
}

impl Watched {
    /// The next moment at which something is to be done for this lease.
    fn next_event(&self) -> Moment {
        let deadline = self.grant.deadline();
        self.renew_at.map_or(deadline, |renew_at| renew_at.min(deadline))
    }
}

impl Watchdog {
    pub(crate) fn new(clock: Clock, store: Arc<dyn LockStore>, try_limit: Duration, home: Home) -> Arc<Self> {
        Arc::new(Self {
            clock,
            store,
            try_limit,
            home,
            next_id: AtomicU64::new(0),
            running: AtomicBool::new(false),
            state: Opaque::default(),
            nudge: Notify::new(),
        })
    }

    pub(crate) fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Watches a new lease until it ends.
    pub(crate) fn watch(self: &Arc<Self>, grant: &Arc<Grant>, sent_at: Moment) {
        let renew_at = grant.plan.renew_every.map(|interval| sent_at.after(interval.get()));
        let mut state = self.state();
        self.enter(&mut state, Watched { grant: grant.clone(), renew_at });
        drop(state);
        self.keep_running();
    }

    /// Starts the loop on the current runtime if it is nobody's: it ends with the runtime that it was started on, and
    /// other leases may live elsewhere.
    pub(crate) fn keep_running(self: &Arc<Self>) {
        if self.home == Home::Task
            && !self.running.load(Ordering::Acquire)
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
            && !self.running.swap(true, Ordering::AcqRel)
        {
            // Made before the task: one that is dropped without ever having run has ended, too.
            let running = Running { watchdog: self.clone(), interrupted: true };
            runtime.spawn(self.clone().run(Some(running)));
        }
    }

    /// Stops watching a lease that has ended.
    pub(crate) fn forget(&self, grant: &Grant) {
        let mut state = self.state();
        let found = state.places.remove(&grant.id).and_then(|at| state.events.remove(&(at, grant.id)));
        if self.home == Home::Task && state.events.is_empty() {
            self.nudge.notify_one();
        }
        drop(state);
        // May be the last reference to the grant and, through it, to the manager: dropped outside of the lock.
        drop(found);
    }

    /// Every live lease.
    pub(crate) fn live(&self) -> Vec<Arc<Grant>> {
        self.state().events.values().map(|watched| watched.grant.clone()).collect()
    }

    /// The loop. Never ends on a thread; ends in a task when there is nothing to watch.
    pub(crate) async fn run(self: Arc<Self>, mut running: Option<Running>) {
        loop {
            let asleep_until = {
                let mut state = self.state();
                let next = state.events.first_key_value().map(|((at, _), _)| *at);
                if next.is_none() && self.home == Home::Task {
                    // Under the lock, so that a lease that comes now finds the loop ended and starts it again.
                    self.running.store(false, Ordering::Release);
                    if let Some(running) = &mut running {
                        running.interrupted = false;
                    }
                    return;
                }
                state.sleeping_until = next;
                next.unwrap_or(Moment::NEVER)
            };
            tokio::select! {
                biased;
                () = self.clock.sleep_until(asleep_until) => {}
                () = self.nudge.notified() => {}
            }
            let now = self.clock.now();
            let late = now.since(asleep_until);
            if late > LATE {
                events::watchdog_late(late);
            }
            self.work_off(now);
        }
    }

    /// Handles every event that is due.
    fn work_off(self: &Arc<Self>, now: Moment) {
        let mut expired = Vec::new();
        let mut due = Vec::new();
        {
            let mut state = self.state();
            while let Some((&(at, id), watched)) = state.events.range(..=(now, u64::MAX)).next() {
                let watched = watched.clone();
                state.events.remove(&(at, id));
                state.places.remove(&id);
                let deadline = watched.grant.deadline();
                if now >= deadline {
                    expired.push(watched.grant);
                } else if watched.renew_at.is_some_and(|renew_at| now >= renew_at) {
                    due.push(watched);
                } else {
                    // The deadline has moved on since the event was noted.
                    self.enter(&mut state, watched);
                }
            }
            if !due.is_empty() {
                Self::join_early(&mut state, now, &mut due);
            }
            for watched in &due {
                // From here on only the deadline counts, until the renewal is answered.
                self.enter(&mut state, Watched { grant: watched.grant.clone(), renew_at: None });
            }
        }
        for grant in expired {
            // In a task of its own: whoever is told may panic, and the others must be told all the same.
            tokio::spawn(async move { grant.end_at_deadline() });
        }
        // A lease with little left gives its batch little time; it must not take it from those that have more.
        let is_urgent = |grant: &Arc<Grant>| grant.remaining() / 2 < self.try_limit;
        let (urgent, relaxed): (Vec<_>, Vec<_>) = due.into_iter().map(|watched| watched.grant).partition(is_urgent);
        for batch in self.batches(urgent).into_iter().chain(self.batches(relaxed)) {
            tokio::spawn(self.clone().renew(batch));
        }
    }

    /// Takes leases that are nearly due along, so that batches are full.
    fn join_early(state: &mut State, now: Moment, due: &mut Vec<Watched>) {
        /// How early, as a share of the lease's own interval.
        const EARLY: u32 = 8;
        const LOOK_AHEAD: Duration = Duration::from_millis(250);
        let room = due.len().next_multiple_of(BATCH) - due.len();
        let nearly: Vec<_> = state
            .events
            .range(..=(now.after(LOOK_AHEAD), u64::MAX))
            .filter(|(_, watched)| {
                let slack = watched.grant.plan.renew_every.map_or(Duration::ZERO, Span::get) / EARLY;
                watched.renew_at.is_some_and(|renew_at| renew_at <= now.after(slack))
            })
            .map(|(place, _)| *place)
            .take(room)
            .collect();
        for place in nearly {
            if let Some(watched) = state.events.remove(&place) {
                state.places.remove(&place.1);
                due.push(watched);
            }
        }
    }

    /// Parts leases into batches of at most [`BATCH`] keys, as the store can renew them together.
    fn batches(&self, mut grants: Vec<Arc<Grant>>) -> Vec<Vec<Arc<Grant>>> {
        let group_of = |grant: &Arc<Grant>| self.store.group(&grant.names.first().wire);
        grants.sort_by_cached_key(group_of);
        let mut batches: Vec<Vec<Arc<Grant>>> = Vec::new();
        let (mut room, mut group) = (0, 0);
        for grant in grants {
            let (keys, own) = (grant.names.len(), group_of(&grant));
            match batches.last_mut() {
                Some(batch) if keys <= room && own == group => batch.push(grant),
                _ => {
                    (room, group) = (BATCH, own);
                    batches.push(vec![grant]);
                }
            }
            room = room.saturating_sub(keys);
        }
        batches
    }

    async fn renew(self: Arc<Self>, batch: Vec<Arc<Grant>>) {
        // One of them may have been released since: it must not be renewed.
        let batch: Vec<_> = batch.into_iter().filter(|grant| grant.deadline() != Moment::PAST).collect();
        let Some(shortest) = batch.iter().map(|grant| grant.remaining()).min() else { return };
        let sent_at = self.clock.now();
        // Half of what is left, so that a second try fits in.
        let limit = self.try_limit.min(shortest / 2).max(*RETRY.start());
        let renewals: Vec<_> = batch.iter().flat_map(|grant| grant.renewals(grant.plan.ttl)).collect();
        let answers = self.store.renew(&renewals, Lane::Back, limit).await;
        match answers {
            Ok(answers) => {
                let mut rest = answers.as_slice();
                for grant in &batch {
                    let (own, others) = rest.split_at(grant.names.len().min(rest.len()));
                    rest = others;
                    if grant.renewed(own, sent_at, grant.plan.ttl) {
                        let interval = grant.plan.renew_every.map_or(Duration::MAX, Span::get);
                        self.expect_renewal(grant, sent_at.after(interval));
                    } else {
                        self.try_again(grant);
                    }
                }
            }
            // One of them may be refused where the others are not.
            Err(error) if !error.kind.is_outage() && batch.len() > 1 => {
                for grant in batch {
                    tokio::spawn(self.clone().renew_boxed(vec![grant]));
                }
            }
            Err(error) => {
                events::renewal_failed(batch[0].key(), batch.len(), &error.text);
                for grant in &batch {
                    self.try_again(grant);
                }
            }
        }
    }

    /// Notes a renewal that was not answered for its next try.
    fn try_again(&self, grant: &Arc<Grant>) {
        // A twentieth of the ttl at the least: near the deadline more tries would not help a server that is down.
        let least = (grant.plan.ttl / 20).clamp(*RETRY.start(), *RETRY.end());
        let pause = (grant.remaining() / 8).clamp(least, *RETRY.end());
        self.expect_renewal(grant, self.clock.now().after(pause.mul_f64(0.5 + fastrand::f64() / 2.0)));
    }

    /// Renews a lease at once, unless it has ended.
    pub(crate) fn renew_now(&self, grant: &Arc<Grant>) {
        self.expect_renewal(grant, self.clock.now());
    }

    /// [`renew`](Self::renew) as a future that it can start itself.
    fn renew_boxed(self: Arc<Self>, batch: Vec<Arc<Grant>>) -> BoxFuture<'static, ()> {
        Box::pin(self.renew(batch))
    }

    /// Notes when a lease wants its next renewal, unless it has ended.
    fn expect_renewal(&self, grant: &Arc<Grant>, renew_at: Moment) {
        let mut state = self.state();
        let Some(at) = state.places.remove(&grant.id) else { return };
        state.events.remove(&(at, grant.id));
        self.enter(&mut state, Watched { grant: grant.clone(), renew_at: Some(renew_at) });
    }

    fn enter(&self, state: &mut State, watched: Watched) {
        let (id, at) = (watched.grant.id, watched.next_event());
        state.places.insert(id, at);
        state.events.insert((at, id), watched);
        if state.sleeping_until.is_none_or(|sleeping_until| at < sleeping_until) {
            self.nudge.notify_one();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs under the lock, so a poisoned state is still whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Notes the end of the loop when it does not end by itself: a runtime that shuts down drops its tasks.
#[derive(Debug)]
pub(crate) struct Running {
    watchdog: Arc<Watchdog>,
    interrupted: bool,
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.interrupted {
            self.watchdog.running.store(false, Ordering::Release);
        }
    }
}

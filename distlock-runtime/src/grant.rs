//! A granted lease as the engine sees it: its deadline, its end, and who must be told.
//!
//! Everything that can end a lease (its holder, its deadline, a renewal that found the key gone, `max_hold`, a shutdown)
//! meets in [`Grant::end`], so a lease ends once, for one reason, and everybody hears of it.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, SystemTime};

use tokio::sync::Notify;

use crate::clock::Moment;
use crate::error::{Holder, LossCause, Lost, Occupant};
use crate::events;
use crate::gate::{News, Turn};
use crate::key::LockName;
use crate::manager::Inner;
use crate::settings::Plan;
use crate::store::{Release, Renewal, Renewed, Token};

/// For how long a token is buried at least: the longest that a copy of its acquisition is expected to be under way in a
/// frozen server or a stalled network.
pub(crate) const BURIAL: Duration = Duration::from_secs(60);

/// One lease, shared by its holder, its handles and the watchdog.
#[derive(Debug)]
pub(crate) struct Grant {
    /// Tells the leases of one manager apart, in the order of their granting.
    pub(crate) id: u64,
    pub(crate) inner: Arc<Inner>,
    pub(crate) name: Arc<LockName>,
    pub(crate) token: Token,
    pub(crate) fencing_token: u64,
    pub(crate) plan: Plan,
    pub(crate) function: Cow<'static, str>,
    /// When the reply that granted it was read.
    pub(crate) granted_at: Moment,
    /// The end set by `max_hold`.
    ends_at: Moment,
    /// A copy of the acquisition may still be under way.
    bury: bool,
    /// Up to when the lease is valid; `PAST` once it has ended. Read before each poll of the body, so it stands outside
    /// of the mutex. Written only under it.
    deadline: AtomicU64,
    /// The body is being polled right now.
    polling: AtomicBool,
    state: Mutex<State>,
    /// Told when the lease is lost.
    lost: Notify,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// The task that polls the body.
    body: Option<Waker>,
    /// The process's turn at the gate, given up with the lease.
    turn: Option<Turn>,
}

#[derive(Debug)]
enum Phase {
    Held,
    Released,
    Lost(Lost),
}

/// Why a lease ends.
pub(crate) enum End {
    ByHolder,
    ByLoss(LossCause),
}

/// What the engine knows when a grant begins.
pub(crate) struct Begun {
    pub(crate) inner: Arc<Inner>,
    pub(crate) name: Arc<LockName>,
    pub(crate) token: Token,
    pub(crate) fencing_token: u64,
    pub(crate) plan: Plan,
    pub(crate) function: Cow<'static, str>,
    pub(crate) granted_at: Moment,
    pub(crate) deadline: Moment,
    pub(crate) bury: bool,
}

impl Grant {
    /// A lease that begins now. The other tasks of the process learn who holds the key.
    pub(crate) fn new(begun: Begun, turn: Option<Turn>) -> Arc<Self> {
        let Begun { inner, name, token, fencing_token, plan, function, granted_at, deadline, bury } = begun;
        let ends_at = plan.max_hold.map_or(Moment::NEVER, |max_hold| granted_at.after(max_hold));
        Arc::new_cyclic(|this| {
            if let Some(turn) = &turn {
                turn.tell(News::HeldHere(this.clone()));
            }
            Self {
                id: inner.watchdog.next_id(),
                inner,
                name,
                token,
                fencing_token,
                plan,
                function,
                granted_at,
                ends_at,
                bury,
                deadline: AtomicU64::new(deadline.min(ends_at).to_nanos()),
                polling: AtomicBool::new(false),
                state: Mutex::new(State { phase: Phase::Held, body: None, turn }),
                lost: Notify::new(),
            }
        })
    }

    /// Up to when the lease is valid; [`Moment::PAST`] once it has ended.
    pub(crate) fn deadline(&self) -> Moment {
        Moment::from_nanos(self.deadline.load(Ordering::Acquire))
    }

    /// What is left of the lease; zero once it has ended.
    pub(crate) fn remaining(&self) -> Duration {
        self.deadline().since(self.inner.clock.now())
    }

    /// Whether the lease is valid now.
    pub(crate) fn is_held(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// The guard before each step of the body: reads the clock and declares the loss if the deadline has passed.
    pub(crate) fn check(&self) -> Result<(), Lost> {
        if self.inner.clock.now() < self.deadline() {
            return Ok(());
        }
        self.end_at_deadline();
        match &self.state().phase {
            Phase::Lost(lost) => Err(lost.clone()),
            // Only a view of a released lease gets here; it holds nothing any more.
            Phase::Held | Phase::Released => Err(Lost::new(self.name.key.clone(), self.held_for(), LossCause::Expired)),
        }
    }

    /// Ends the lease if its deadline or `max_hold` has passed.
    pub(crate) fn end_at_deadline(&self) {
        let now = self.inner.clock.now();
        if now >= self.deadline() {
            let cause = if now >= self.ends_at { LossCause::MaxHold } else { LossCause::Expired };
            self.end(End::ByLoss(cause));
        }
    }

    /// Ends the lease, once. `true` if this call did it.
    ///
    /// A loss wakes the body and every [`lost`](Self::lost), and gives the turn to the next task. It sends a
    /// compare-and-delete in the background unless the server itself said that the key is not ours, or a shutdown does
    /// it in its own time.
    pub(crate) fn end(&self, end: End) -> bool {
        let mut state = self.state();
        if !matches!(state.phase, Phase::Held) {
            return false;
        }
        self.deadline.store(Moment::PAST.to_nanos(), Ordering::Release);
        let End::ByLoss(cause) = end else {
            state.phase = Phase::Released;
            drop(state);
            self.inner.watchdog.forget(self);
            return true;
        };
        let lost = Lost::new(self.name.key.clone(), self.held_for(), cause);
        state.phase = Phase::Lost(lost.clone());
        let (body, turn) = (state.body.take(), state.turn.take());
        drop(state);
        self.inner.watchdog.forget(self);
        if matches!(cause, LossCause::Expired | LossCause::MaxHold) {
            self.inner.release_in_background(self.release_request(), self.plan.ttl, None);
        }
        drop(turn);
        if let Some(body) = body {
            body.wake();
        }
        self.lost.notify_waiters();
        events::lost(&lost);
        true
    }

    /// The turn at the gate, for the release to give up when it is answered.
    pub(crate) fn take_turn(&self) -> Option<Turn> {
        self.state().turn.take()
    }

    /// What others may know of the lease.
    pub(crate) fn occupant(&self) -> Occupant {
        let held_for = self.held_for();
        let (host, pid) = self.inner.process.rsplit_once('/').unwrap_or((&self.inner.process, ""));
        // The wall clock serves the reader's eye alone.
        let since = SystemTime::now().checked_sub(held_for).unwrap_or(SystemTime::UNIX_EPOCH);
        Occupant {
            holder: Some(Holder::new(host, pid.parse().unwrap_or_default(), &self.function, since)),
            retry_after: Some(self.remaining()),
            held_for: Some(held_for),
        }
    }

    /// Moves the deadline to what a command sent at `sent_at` with this `ttl` allows. Never backwards, and not once the
    /// old one has passed.
    pub(crate) fn prolong(&self, sent_at: Moment, ttl: Duration) {
        let state = self.state();
        let old = self.deadline();
        if !matches!(state.phase, Phase::Held) || self.inner.clock.now() >= old {
            return;
        }
        let new = sent_at.after(self.inner.defaults.validity(ttl)).min(self.ends_at);
        self.deadline.store(old.max(new).to_nanos(), Ordering::Release);
    }

    /// Takes in what a renewal sent at `sent_at` found.
    pub(crate) fn renewed(&self, answer: Renewed, sent_at: Moment, ttl: Duration) {
        match answer {
            Renewed::Yes => self.prolong(sent_at, ttl),
            Renewed::Absent => {
                self.end(End::ByLoss(LossCause::Deleted));
            }
            Renewed::Stolen => {
                self.end(End::ByLoss(LossCause::Stolen));
            }
        }
    }

    /// Completes when the lease is lost; never after a release.
    pub(crate) async fn lost(&self) -> Lost {
        loop {
            let told = self.lost.notified();
            tokio::pin!(told);
            // Listen first, then look: a loss in between is not missed.
            told.as_mut().enable();
            if let Some(lost) = self.loss() {
                return lost;
            }
            told.await;
        }
    }

    /// The loss, if the lease was lost.
    pub(crate) fn loss(&self) -> Option<Lost> {
        match &self.state().phase {
            Phase::Lost(lost) => Some(lost.clone()),
            Phase::Held | Phase::Released => None,
        }
    }

    /// Has the loss wake `waker`, which polls the body.
    pub(crate) fn wake_on_loss(&self, waker: &Waker) {
        let mut state = self.state();
        match &mut state.body {
            Some(known) if known.will_wake(waker) => {}
            body => *body = Some(waker.clone()),
        }
    }

    /// Marks the body as running until the guard is dropped.
    pub(crate) fn poll_body(&self) -> impl Drop + '_ {
        struct Polling<'a>(&'a AtomicBool);
        impl Drop for Polling<'_> {
            fn drop(&mut self) {
                self.0.store(false, Ordering::Release);
            }
        }
        self.polling.store(true, Ordering::Release);
        Polling(&self.polling)
    }

    /// Completes when no step of the body is running.
    pub(crate) async fn body_at_rest(&self) {
        while self.polling.load(Ordering::Acquire) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    pub(crate) fn held_for(&self) -> Duration {
        self.inner.clock.now().since(self.granted_at)
    }

    pub(crate) fn renewal(&self, ttl: Duration) -> Renewal {
        Renewal { name: self.name.clone(), token: self.token, expiry: self.inner.defaults.expiry(ttl) }
    }

    /// The command that gives the key back, or leaves it standing for what is left of `min_hold`.
    pub(crate) fn release_request(&self) -> Release {
        let rest =
            self.plan.min_hold.map(|min_hold| min_hold.saturating_sub(self.held_for())).filter(|rest| !rest.is_zero());
        Release {
            name: self.name.clone(),
            token: self.token,
            keep: rest,
            bury: self.bury.then(|| self.plan.ttl.max(BURIAL)),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code that can panic runs under the lock, so a poisoned state is still whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

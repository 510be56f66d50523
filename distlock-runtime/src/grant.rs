//! A granted lease as the engine sees it: its deadline, its end, and who must be told.
//!
//! Everything that can end a lease (its holder, its deadline, a renewal that found the key gone, `max_hold`, a shutdown)
//! meets in [`Grant::end`], so a lease ends once, for one reason, and everybody hears of it.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, SystemTime};

use tokio::sync::Notify;

use crate::background::Counted;
use crate::clock::Moment;
use crate::error::{Holder, LossCause, Lost, Occupant};
use crate::events;
use crate::gate::{News, Turn};
use crate::hand_on::HandOn;
use crate::key::Names;
use crate::manager::Inner;
use crate::settings::Plan;
use crate::store::{FencingTokens, Release, Renewal, Renewed, Token};

/// For how long a token is buried at least: the longest that a copy of its acquisition is expected to be under way in a
/// frozen server or a stalled network.
pub(crate) const BURIAL: Duration = Duration::from_secs(60);

/// How many wakers of bodies are kept: a holder's, and those of some re-entrant calls.
const MOST_WAKERS: usize = 16;

/// One lease, shared by its holder, its handles and the watchdog.
#[derive(Debug)]
pub(crate) struct Grant {
    /// Tells the leases of one manager apart, in the order of their granting.
    pub(crate) id: u64,
    pub(crate) inner: Arc<Inner>,
    pub(crate) names: Arc<Names>,
    pub(crate) token: Token,
    pub(crate) fencing_tokens: FencingTokens,
    pub(crate) plan: Plan,
    pub(crate) function: Cow<'static, str>,
    /// When the reply that granted it was read.
    pub(crate) granted_at: Moment,
    /// The end set by `max_hold`.
    ends_at: Moment,
    /// A copy of the acquisition may still be under way.
    bury: bool,
    /// How the key may go on to the next task of the process.
    pub(crate) hand_on: Option<HandOn>,
    /// Up to when the lease is valid; `PAST` once it has ended. Read before each poll of the body, so it stands outside
    /// of the mutex. Written only under it.
    deadline: AtomicU64,
    /// How long the key may live on the server from the last command that prolonged it, in nanoseconds.
    life: AtomicU64,
    /// How many bodies, one inside the other, are being polled right now.
    polling: AtomicUsize,
    /// Told when no body is being polled any more.
    at_rest: Notify,
    state: Mutex<State>,
    /// Told when the lease is lost.
    lost: Notify,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// Who polls a body under this lease: its holder, and re-entrant calls inside.
    bodies: Bodies,
    /// The process's turn at the gate, given up with the lease.
    turn: Option<Turn>,
}

/// Their wakers. There is hardly ever more than one.
#[derive(Debug, Default)]
struct Bodies {
    first: Option<Waker>,
    more: Vec<Waker>,
}

impl Bodies {
    fn add(&mut self, waker: &Waker) {
        if self.first.iter().chain(&self.more).any(|known| known.will_wake(waker)) {
            return;
        }
        if self.first.is_none() {
            self.first = Some(waker.clone());
            return;
        }
        // Wakers of steps that are over are woken for nothing at the worst; the newest ones are those that count.
        if self.more.len() == MOST_WAKERS {
            self.more.remove(0);
        }
        self.more.push(waker.clone());
    }

    fn wake(self) {
        self.first.into_iter().chain(self.more).for_each(Waker::wake);
    }
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
    /// A renewal found the key at this place of the sorted order absent or foreign.
    AtServer(usize, LossCause),
}

/// What the engine knows when a grant begins.
pub(crate) struct Begun {
    pub(crate) inner: Arc<Inner>,
    pub(crate) names: Arc<Names>,
    pub(crate) token: Token,
    pub(crate) fencing_tokens: FencingTokens,
    pub(crate) plan: Plan,
    pub(crate) function: Cow<'static, str>,
    pub(crate) granted_at: Moment,
    pub(crate) deadline: Moment,
    /// How long the key may live on the server already, beyond what the plan says.
    pub(crate) life: Duration,
    pub(crate) bury: bool,
    pub(crate) hand_on: Option<HandOn>,
    /// A shutdown waits for what becomes of the key until the lease is watched.
    pub(crate) counted: Option<Counted>,
}

impl Grant {
    /// A lease that begins now. The other tasks of the process learn who holds the key.
    pub(crate) fn new(begun: Begun, turn: Option<Turn>) -> Arc<Self> {
        let Begun {
            inner,
            names,
            token,
            fencing_tokens,
            plan,
            function,
            granted_at,
            deadline,
            life,
            bury,
            hand_on,
            counted: _,
        } = begun;
        let ends_at = plan.max_hold.map_or(Moment::NEVER, |max_hold| granted_at.after(max_hold));
        Arc::new_cyclic(|this| {
            if let Some(turn) = &turn {
                turn.tell(News::HeldHere(this.clone()));
            }
            Self {
                id: inner.watchdog.next_id(),
                inner,
                names,
                token,
                fencing_tokens,
                plan,
                function,
                granted_at,
                ends_at,
                bury,
                hand_on,
                deadline: AtomicU64::new(deadline.min(ends_at).to_nanos()),
                life: AtomicU64::new(u64::try_from(life.as_nanos()).unwrap_or(u64::MAX)),
                polling: AtomicUsize::new(0),
                at_rest: Notify::new(),
                state: Mutex::new(State { phase: Phase::Held, bodies: Bodies::default(), turn }),
                lost: Notify::new(),
            }
        })
    }

    /// The key that was declared first, as the caller gave it.
    pub(crate) fn key(&self) -> &Arc<str> {
        &self.names.at(self.names.place(0)).key
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
            Phase::Held | Phase::Released => Err(Lost::new(self.key().clone(), self.held_for(), LossCause::Expired)),
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
    /// compare-and-delete in the background unless the server itself said that the only key is not ours and no copy of the
    /// acquisition is under way, or a shutdown does it in its own time.
    pub(crate) fn end(&self, end: End) -> bool {
        let mut state = self.state();
        if !matches!(state.phase, Phase::Held) {
            return false;
        }
        self.deadline.store(Moment::PAST.to_nanos(), Ordering::Release);
        let (key, cause) = match end {
            End::ByHolder => {
                state.phase = Phase::Released;
                state.bodies = Bodies::default();
                drop(state);
                self.inner.watchdog.forget(self);
                return true;
            }
            End::ByLoss(cause) => (self.key(), cause),
            End::AtServer(place, cause) => (&self.names.at(place).key, cause),
        };
        let lost = Lost::new(key.clone(), self.held_for(), cause);
        state.phase = Phase::Lost(lost.clone());
        let (bodies, turn) = (std::mem::take(&mut state.bodies), state.turn.take());
        drop(state);
        self.inner.watchdog.forget(self);
        let may_be_ours = match cause {
            LossCause::Expired | LossCause::MaxHold => true,
            // A copy of the acquisition that is still under way would take the key for a token that nobody holds.
            LossCause::Deleted | LossCause::Stolen => self.names.len() > 1 || self.bury || self.inner.store.is_spread(),
            LossCause::Shutdown => false,
        };
        if may_be_ours {
            let mut request = self.release_request();
            let grace = self.inner.defaults.grace;
            if cause != LossCause::MaxHold && !grace.is_zero() {
                request.keep = request.keep.max(Some(grace));
            }
            self.inner.release_in_background(request, self.longest_life(), None);
        }
        drop(turn);
        bodies.wake();
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
        let fencing_token = (self.names.len() == 1).then_some(self.fencing_tokens.first);
        // The wall clock serves the reader's eye alone.
        let since = SystemTime::now().checked_sub(held_for).unwrap_or(SystemTime::UNIX_EPOCH);
        Occupant {
            holder: Some(Holder::new(host, pid.parse().unwrap_or_default(), &self.function, since, fencing_token)),
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

    /// Takes in what a renewal sent at `sent_at` found, key by key in the sorted order. `false` if it decides nothing.
    pub(crate) fn renewed(&self, answers: &[Renewed], sent_at: Moment, ttl: Duration) -> bool {
        for (place, answer) in answers.iter().enumerate() {
            let cause = match answer {
                Renewed::Yes | Renewed::Unknown => continue,
                Renewed::Absent => LossCause::Deleted,
                Renewed::Stolen => LossCause::Stolen,
            };
            self.end(End::AtServer(place, cause));
            return true;
        }
        // Of what no answer came for, nothing is known.
        if answers.len() < self.names.len() || answers.contains(&Renewed::Unknown) {
            return false;
        }
        self.prolong(sent_at, ttl);
        true
    }

    /// Completes when the lease is lost; never after a release.
    pub(crate) async fn lost(&self) -> Lost {
        self.inner.watchdog.keep_running();
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

    /// Has the loss wake `waker`, which polls a body.
    pub(crate) fn wake_on_loss(&self, waker: &Waker) {
        self.state().bodies.add(waker);
    }

    /// Counts a step of the body until the guard is dropped.
    pub(crate) fn poll_body(&self) -> impl Drop + '_ {
        struct Polling<'a>(&'a Grant);
        impl Drop for Polling<'_> {
            fn drop(&mut self) {
                if self.0.polling.fetch_sub(1, Ordering::AcqRel) == 1 {
                    self.0.at_rest.notify_waiters();
                }
            }
        }
        self.polling.fetch_add(1, Ordering::AcqRel);
        Polling(self)
    }

    /// Completes when no step of the body is running.
    pub(crate) async fn body_at_rest(&self) {
        loop {
            let at_rest = self.at_rest.notified();
            tokio::pin!(at_rest);
            // Listen first, then look: a step that ends in between is not missed.
            at_rest.as_mut().enable();
            if self.polling.load(Ordering::Acquire) == 0 {
                return;
            }
            at_rest.await;
        }
    }

    /// Notes that a command with this ttl leaves: from now on the key may live that long, answered or not.
    pub(crate) fn may_live_for(&self, ttl: Duration) {
        let life = self.inner.defaults.expiry(ttl);
        self.life.fetch_max(u64::try_from(life.as_nanos()).unwrap_or(u64::MAX), Ordering::AcqRel);
    }

    /// The longest that the key may still be on the server if nobody touches it.
    pub(crate) fn longest_life(&self) -> Duration {
        Duration::from_nanos(self.life.load(Ordering::Acquire)).max(self.inner.defaults.expiry(self.plan.ttl))
    }

    pub(crate) fn held_for(&self) -> Duration {
        self.inner.clock.now().since(self.granted_at)
    }

    /// What prolongs each key, in the sorted order.
    pub(crate) fn renewals(&self, ttl: Duration) -> impl Iterator<Item = Renewal> {
        let (token, expiry) = (self.token, self.inner.defaults.expiry(ttl));
        self.names.iter().map(move |name| Renewal { wire: name.wire.clone(), token, expiry })
    }

    /// The command that gives the keys back, or leaves them standing for what is left of `min_hold`.
    pub(crate) fn release_request(&self) -> Release {
        let rest =
            self.plan.min_hold.map(|min_hold| min_hold.saturating_sub(self.held_for())).filter(|rest| !rest.is_zero());
        Release {
            names: self.names.clone(),
            token: self.token,
            keep: rest,
            bury: self.bury.then(|| self.longest_life().max(BURIAL)),
            waits_on: false,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code that can panic runs under the lock, so a poisoned state is still whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A grant as one lease sees it: through the keys that it was asked for, which may be fewer than those of the grant, or
/// in another order, where a task enters a lock that it holds.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) grant: Arc<Grant>,
    pub(crate) names: Arc<Names>,
}

impl View {
    /// Through all keys of the grant.
    pub(crate) fn whole(grant: Arc<Grant>) -> Self {
        Self { names: grant.names.clone(), grant }
    }

    /// How many keys were declared.
    pub(crate) fn parts(&self) -> usize {
        self.names.parts()
    }

    /// The key of a part, as the caller gave it; parts are counted as they were declared.
    pub(crate) fn key_of(&self, part: usize) -> &str {
        &self.names.at(self.names.place(part)).key
    }

    /// The fencing token of a part.
    pub(crate) fn fencing_token_of(&self, part: usize) -> u64 {
        let wire = &self.names.at(self.names.place(part)).wire;
        // The grant has every key that is seen through it.
        let place = self.grant.names.iter().position(|name| name.wire == *wire).unwrap_or_default();
        self.grant.fencing_tokens.at(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manager::LockManager;

    #[tokio::test(start_paused = true)]
    async fn a_renewal_that_was_not_answered_for_all_keys_prolongs_nothing() {
        const TTL: Duration = Duration::from_secs(1);
        let locks = LockManager::in_memory();
        let _lease = locks.lock("k").ttl(TTL).acquire().await.unwrap();
        let grant = locks.inner().watchdog.live().remove(0);
        let deadline = grant.deadline();
        tokio::time::advance(TTL / 10).await;
        let sent_at = locks.inner().clock.now();
        assert!(!grant.renewed(&[], sent_at, TTL));
        assert_eq!(grant.deadline(), deadline);
        assert!(grant.renewed(&[Renewed::Yes], sent_at, TTL));
        assert!(grant.deadline() > deadline);
    }
}

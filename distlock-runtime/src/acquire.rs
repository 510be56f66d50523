//! Getting a lease: gate, attempts, waiting, and what becomes of an attempt that nobody wants any more.
//!
//! The first poll does everything up to the first command; nothing is sent before. An [`Attempt`] is armed before its
//! first send, so wherever the future is dropped, its token is compensated for in the background. That is why the
//! acquisition can run in the caller's own task, without the cost of another one.

use std::borrow::Cow;
use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::attempt::Attempt;
use crate::clock::{Moment, needs_runtime};
use crate::error::{Busy, InvalidKey, LockError, Occupant, Reentrant, Unavailable};
use crate::events;
use crate::gate::{Entry, News, Turn};
use crate::grant::{Begun, Grant, View};
use crate::held;
use crate::key::{Keys, LockName, Names};
use crate::manager::{Inner, LockManager};
use crate::release::release_in_background;
use crate::settings::{Plan, Settings};
use crate::store::{Acquired, Rest, Waiting};

/// Bounds of the pause between two tries while the server cannot be asked.
const OUTAGE_PAUSE: std::ops::Range<Duration> = Duration::from_millis(20)..Duration::from_millis(250);

/// How long a command may take whose turn comes at the very end of the budget.
const LAST_LOOK: Duration = Duration::from_millis(20);

/// How many milliseconds after the holder's expiry a waiter looks: not a moment too early, and not all at once.
const AFTER_EXPIRY: std::ops::RangeInclusive<u64> = 1..=10;

/// Bounds of the pause between two signs of life of a waiter.
const HEARTBEAT: std::ops::RangeInclusive<Duration> = Duration::from_millis(500)..=Duration::from_secs(3);

/// How often a single try asks again where several ask at the same moment and nobody gets enough servers.
const CONTESTS: u32 = 8;

/// The longest pause before the second of these tries; it doubles so many times.
const CONTEST_PAUSE: Duration = Duration::from_millis(2);
const MOST_DOUBLINGS: u32 = 10;

/// How many signs of life a waiter may miss before its place in line is gone.
const MISSED: u32 = 3;

/// What a call wants, with everything decided that can be decided without the server.
#[derive(Debug)]
pub(crate) struct Intent {
    pub(crate) inner: Arc<Inner>,
    pub(crate) names: Arc<Names>,
    pub(crate) plan: Plan,
    pub(crate) function: Cow<'static, str>,
}

/// How a call came to its lease.
pub(crate) enum Holding {
    /// It is the holder.
    Own(Arc<Grant>),
    /// Its task was the holder already, and re-entrance is allowed.
    Shared(View),
}

impl Holding {
    pub(crate) fn grant(&self) -> &Arc<Grant> {
        match self {
            Self::Own(grant) => grant,
            Self::Shared(view) => &view.grant,
        }
    }

    /// What the call sees of its lease.
    pub(crate) fn view(&self) -> View {
        match self {
            Self::Own(grant) => View::whole(grant.clone()),
            Self::Shared(view) => view.clone(),
        }
    }
}

impl Intent {
    pub(crate) fn new(
        manager: &LockManager,
        keys: &Keys,
        settings: &Settings,
        function: Cow<'static, str>,
    ) -> Result<Self, LockError> {
        let inner = manager.inner();
        Ok(Self {
            inner: inner.clone(),
            names: inner.namespace.names(keys)?,
            plan: settings.plan(&inner.defaults)?,
            function,
        })
    }

    /// Gets the lease, or says why not.
    ///
    /// # Cancel safety
    ///
    /// Dropped at any point, it leaves no key behind: what may have been sent is taken back in the background.
    pub(crate) async fn acquire(self: Box<Self>) -> Result<Holding, LockError> {
        self.inner.open()?;
        if let Some(grant) = held::find(&self.inner, &self.names).filter(|grant| grant.is_held()) {
            // Only a lease on all of the keys can be shared: to wait for the others would mean to hold and wait.
            return if self.plan.reentrant && grant.names.cover(&self.names) {
                Ok(Holding::Shared(View { grant, names: self.names.clone() }))
            } else {
                let key = &self.names.shared(&grant.names).unwrap_or(self.names.first()).key;
                Err(Reentrant::new(key.clone(), &grant.function).into())
            };
        }
        needs_runtime()?;
        let budget = Budget::new(&self);
        let mut turn = self.pass_gate(&budget).await?;
        if let Some(begun) = turn.as_mut().and_then(Turn::inheritance).and_then(|inherited| {
            let estate = inherited.claim()?;
            estate.into_lease(&self)
        }) {
            let granted_at = begun.granted_at;
            return self.begin(begun, turn, granted_at).map(Holding::Own);
        }
        self.attempt(&budget, turn).await.map(Holding::Own)
    }

    /// Waits for the process's turn for each of the keys, in their sorted order, so that two locks that share keys do not
    /// wait for each other. `None`: a single try that may ask the server beside whoever has the turn.
    async fn pass_gate(&self, budget: &Budget<'_>) -> Result<Option<Turn>, LockError> {
        let mut all: Option<Turn> = None;
        for name in self.names.iter() {
            let turn =
                if budget.one_try { self.try_gate(name, budget)? } else { self.queue_at_gate(name, budget).await? };
            match (&mut all, turn) {
                (Some(all), Some(turn)) => all.join(turn),
                (all, turn) => *all = all.take().or(turn),
            }
        }
        Ok(all)
    }

    /// The turn for one key if it is there, or a truthful answer from what is known of the key. `None`: nothing is.
    fn try_gate(&self, name: &LockName, budget: &Budget<'_>) -> Result<Option<Turn>, LockError> {
        match self.inner.gate.try_enter(&name.wire) {
            Ok(turn) => Ok(Some(turn)),
            Err((News::HeldHere(grant), _)) if grant.upgrade().is_some_and(|grant| grant.is_held()) => {
                Err(self.busy(name, held_here(&grant), budget))
            }
            Err((News::HeldElsewhere(occupant), _)) => Err(self.busy(name, occupant, budget)),
            Err((News::Failing(error), _)) => Err(error),
            // Whoever waits for the turn comes first.
            Err((News::HeldHere(_), true) | (News::Passed, _)) => Err(self.busy(name, Occupant::default(), budget)),
            // It is being released, or nothing is known yet: only the server can tell.
            Err((News::HeldHere(_), false) | (News::Asking, _)) => Ok(None),
        }
    }

    /// Waits for the turn for one key.
    async fn queue_at_gate(&self, name: &LockName, budget: &Budget<'_>) -> Result<Option<Turn>, LockError> {
        let gate = &self.inner.gate;
        // Without renewal, what it begins with is all that it gets.
        let may_inherit = self.names.len() == 1 && self.plan.renew_every.is_some();
        let heir = may_inherit.then_some(self.plan.ttl);
        match gate.enter(&name.wire, heir) {
            Entry::Turn(turn) => Ok(Some(turn)),
            Entry::Queued(turn) => match budget.bound(turn, || is_open(&gate.news(&name.wire))).await {
                Some(Ok(turn)) => Ok(Some(turn)),
                // The sender is only dropped with the gate itself.
                Some(Err(_)) => Ok(None),
                None => Err(match gate.news(&name.wire) {
                    News::Failing(error) => error,
                    News::HeldElsewhere(occupant) => self.busy(name, occupant, budget),
                    News::HeldHere(grant) if !is_open(&News::HeldHere(grant.clone())) => {
                        self.busy(name, held_here(&grant), budget)
                    }
                    News::Asking | News::Passed | News::HeldHere(_) => {
                        Unavailable::new("another task of this process asked for the same key and had no answer either")
                            .into()
                    }
                }),
            },
        }
    }

    /// Asks the server until it grants the lock or the budget is spent.
    async fn attempt(&self, budget: &Budget<'_>, turn: Option<Turn>) -> Result<Arc<Grant>, LockError> {
        let mut attempt = Attempt::new(self);
        // The place in line outlives the token: a waiter that must begin anew does not go to the end.
        let mut ticket = None;
        let mut pause = OUTAGE_PAUSE.start;
        let mut resent = false;
        let mut last_seen = None;
        let mut contests = 0;
        // Before the first question, so that nothing is missed that happens while it is answered.
        let mark = self.inner.store.mark();
        let mut ear = None;
        loop {
            self.inner.open()?;
            let sent_at = self.inner.clock.now();
            // Only the answer right before this one may speak for it.
            let just_seen = last_seen.take();
            let limit = budget.command_limit();
            let wait = (!budget.one_try).then(|| Waiting { life: budget.entry_life(self.heartbeat()), ticket });
            match attempt.send(wait, limit).await {
                Ok(Acquired::Granted { fencing_tokens, reserved, rest }) => {
                    let token = attempt.token();
                    if let Some(begun) = attempt.into_lease(fencing_tokens, reserved, sent_at) {
                        let granted = self.begin(begun, turn, sent_at);
                        if let (Ok(grant), Some(rest)) = (&granted, rest) {
                            heal_when_known(grant, rest);
                        }
                        return granted;
                    }
                    let late = LockError::from(Unavailable::new(
                        "the reply that granted the lock came so late that little of the lease was left; the key was given back",
                    ));
                    self.wait_through(late, budget, &turn)?;
                    attempt = Attempt::behind(self, Some(token));
                    self.rest(&mut pause, budget).await;
                }
                Ok(Acquired::Held { place, occupant, ticket: given, leftovers }) => {
                    (resent, pause, contests) = (false, OUTAGE_PAUSE.start, 0);
                    ticket = given.or(ticket);
                    if leftovers {
                        attempt = attempt.give_back();
                    }
                    if budget.one_try || budget.spent() {
                        return Err(self.busy(self.names.at(place), occupant, budget));
                    }
                    let ear = ear.get_or_insert_with(|| self.inner.store.listen(&self.names, mark));
                    let look_again = self.look_again(&occupant, budget, sent_at);
                    tell(&turn, News::HeldElsewhere(occupant.clone()));
                    last_seen = Some((place, occupant));
                    tokio::select! {
                        biased;
                        () = self.inner.closing() => {}
                        () = self.inner.store.wake_up(ear, look_again) => {}
                    }
                    if budget.spent()
                        && let Some((place, occupant)) = last_seen.take()
                    {
                        return Err(self.busy(self.names.at(place), occupant, budget));
                    }
                }
                Ok(Acquired::Contested { or_else }) => {
                    attempt = attempt.give_back();
                    contests += 1;
                    let is_over =
                        if budget.one_try { contests == CONTESTS || budget.nearly_spent() } else { budget.spent() };
                    if is_over {
                        return Err(match or_else {
                            Some(error) => error.into(),
                            None => self.busy(self.names.first(), Occupant::default(), budget),
                        });
                    }
                    tell(&turn, News::HeldElsewhere(Occupant::default()));
                    // At random, so that one of them comes first, and wider each time, for there may be many.
                    let most = (CONTEST_PAUSE * 2_u32.pow(contests.min(MOST_DOUBLINGS))).min(self.heartbeat());
                    self.pause(most.mul_f64(fastrand::f64()).min(budget.left_or(most))).await;
                }
                Ok(Acquired::Unacknowledged(text)) => {
                    self.wait_through(Unavailable::new(text).into(), budget, &turn)?;
                    attempt = attempt.give_back();
                    self.rest(&mut pause, budget).await;
                }
                // Only a token that was given up is buried; a new one starts afresh.
                Ok(Acquired::Dead) => attempt = Attempt::new(self),
                Ok(Acquired::Foreign { place, what, .. }) => {
                    return Err(InvalidKey::new(&*self.names.at(place).key, what).into());
                }
                Err(error) if !error.kind.is_outage() => return Err(error.into()),
                // The budget cut the last look at a key that was held.
                Err(error) if error.unanswered && budget.spent() && limit < self.silence() => {
                    return Err(match just_seen {
                        Some((place, occupant)) => self.busy(self.names.at(place), occupant, budget),
                        None => error.into(),
                    });
                }
                // The first command after a broken connection fails, the next one finds a new connection.
                Err(_) if !resent && !budget.nearly_spent() => resent = true,
                Err(error) => {
                    self.wait_through(error.into(), budget, &turn)?;
                    // What was sent is compensated for, so its token is dead.
                    attempt = attempt.give_back();
                    self.rest(&mut pause, budget).await;
                }
            }
        }
    }

    /// How long to wait for a wake-up before asking again: not beyond the holder's expiry, nor the next sign of life that
    /// keeps the place in line. Counted from the send of the question that was answered, however late the answer came.
    /// The last question leaves the server time to answer, for only an answer tells a lock that is busy from an outage.
    fn look_again(&self, occupant: &Occupant, budget: &Budget<'_>, sent_at: Moment) -> Duration {
        let jitter = Duration::from_millis(fastrand::u64(AFTER_EXPIRY));
        let expires_in = occupant.retry_after.map_or(Duration::MAX, |left| left.saturating_add(jitter));
        let at = sent_at.after(expires_in.min(self.heartbeat()));
        let left = budget.left();
        // Twice what it takes, so that a late timer does not make it too short.
        let last_look = left.saturating_sub(self.silence() * 2);
        at.since(self.inner.clock.now()).min(if last_look.is_zero() { left } else { last_look })
    }

    /// For how long a server that does not answer is not called an outage yet.
    fn silence(&self) -> Duration {
        self.inner.response_timeout / 4
    }

    /// How often a waiter shows that it is alive.
    fn heartbeat(&self) -> Duration {
        (self.plan.ttl / 10).clamp(*HEARTBEAT.start(), *HEARTBEAT.end())
    }

    /// Puts a fresh lease under the watchdog's eyes, unless the manager was shut down in the meantime: a shutdown ends the
    /// leases that it finds there, and this one it may not have found.
    fn begin(&self, mut begun: Begun, turn: Option<Turn>, sent_at: Moment) -> Result<Arc<Grant>, LockError> {
        // Counts until the lease is where a shutdown finds it, or its release counts.
        let _counted = begun.counted.take();
        let grant = Grant::new(begun, turn);
        self.inner.watchdog.watch(&grant, sent_at);
        if let Err(closed) = self.inner.open() {
            release_in_background(&grant);
            return Err(closed);
        }
        Ok(grant)
    }

    /// Goes on in spite of an outage, and tells the others of the process, if there is time; else it is the call's error.
    fn wait_through(&self, error: LockError, budget: &Budget<'_>, turn: &Option<Turn>) -> Result<(), LockError> {
        if budget.one_try || budget.nearly_spent() {
            return Err(error);
        }
        events::waiting_through_outage(self.key(), &error);
        tell(turn, News::Failing(error));
        Ok(())
    }

    /// The pause between two tries while the server cannot be asked.
    async fn rest(&self, pause: &mut Duration, budget: &Budget<'_>) {
        self.pause(pause.mul_f64(0.5 + fastrand::f64() / 2.0).min(budget.left())).await;
        *pause = (*pause * 2).min(OUTAGE_PAUSE.end);
    }

    /// Waits so long, or until the manager is closed.
    async fn pause(&self, pause: Duration) {
        tokio::select! {
            biased;
            () = self.inner.closing() => {}
            () = self.inner.clock.sleep_until(self.inner.clock.now().after(pause)) => {}
        }
    }

    /// The key that stands for all of them in an event.
    fn key(&self) -> &str {
        &self.names.first().key
    }

    fn busy(&self, name: &LockName, occupant: Occupant, budget: &Budget<'_>) -> LockError {
        Busy::new(name.key.clone(), occupant, budget.used()).into()
    }
}

/// Has a lease renewed at once that not all servers have, as soon as that is known: a renewal puts it on those that lack it.
fn heal_when_known(grant: &Arc<Grant>, rest: Rest) {
    let grant = Arc::downgrade(grant);
    tokio::spawn(async move {
        if rest.0.await
            && let Some(grant) = grant.upgrade()
            && grant.plan.renew_every.is_some()
        {
            grant.inner.watchdog.renew_now(&grant);
        }
    });
}

fn tell(turn: &Option<Turn>, news: News) {
    if let Some(turn) = turn {
        turn.tell(news);
    }
}

/// Whether only the server's answer to another task can tell how it stands: it is asking, or gives the key back.
fn is_open(news: &News) -> bool {
    match news {
        News::Asking | News::Passed => true,
        News::HeldHere(grant) => !grant.upgrade().is_some_and(|grant| grant.is_held()),
        News::HeldElsewhere(_) | News::Failing(_) => false,
    }
}

fn held_here(grant: &Weak<Grant>) -> Occupant {
    grant.upgrade().map(|grant| grant.occupant()).unwrap_or_default()
}

/// What a call may spend on getting its lock, everything included.
struct Budget<'a> {
    inner: &'a Inner,
    begun_at: Moment,
    ends_at: Moment,
    /// Zero wait: one try, bounded by the response time-out alone.
    one_try: bool,
}

impl<'a> Budget<'a> {
    fn new(intent: &'a Intent) -> Self {
        let begun_at = intent.inner.clock.now();
        let ends_at = intent.plan.wait.map_or(Moment::NEVER, |wait| begun_at.after(wait));
        Self { inner: &intent.inner, begun_at, ends_at, one_try: ends_at == begun_at }
    }

    fn used(&self) -> Duration {
        self.inner.clock.now().since(self.begun_at)
    }

    fn left(&self) -> Duration {
        self.ends_at.since(self.inner.clock.now())
    }

    /// What is left for waiting; a single try, which has no time to wait, gets `least`.
    fn left_or(&self, least: Duration) -> Duration {
        if self.one_try { least } else { self.left() }
    }

    fn spent(&self) -> bool {
        self.left().is_zero()
    }

    /// No further try fits in. A single try has its resend, within its limit.
    fn nearly_spent(&self) -> bool {
        if self.one_try { self.used() >= self.inner.try_limit } else { self.left() < OUTAGE_PAUSE.start }
    }

    /// How long the next command may take.
    fn command_limit(&self) -> Duration {
        let limit = self.inner.try_limit;
        if self.one_try { limit.saturating_sub(self.used()) } else { limit.min(self.left().max(LAST_LOOK)) }
    }

    /// How long a place in line is kept without a sign of life: not beyond the budget, for then nobody wants it.
    fn entry_life(&self, heartbeat: Duration) -> Duration {
        (heartbeat * MISSED).saturating_add(self.inner.response_timeout).min(self.left().saturating_add(LAST_LOOK))
    }

    /// `future`, unless the budget ends first; a little longer if then nothing is known yet.
    async fn bound<F: Future>(&self, future: F, nothing_known: impl Fn() -> bool) -> Option<F::Output> {
        tokio::pin!(future);
        tokio::select! {
            biased;
            output = &mut future => return Some(output),
            () = self.inner.clock.sleep_until(self.ends_at) => {}
        }
        if !nothing_known() {
            return None;
        }
        tokio::select! {
            biased;
            output = &mut future => Some(output),
            () = self.inner.clock.sleep_until(self.ends_at.after(LAST_LOOK)) => None,
        }
    }
}

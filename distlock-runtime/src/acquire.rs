//! Getting a lease: gate, attempts, waiting, and what becomes of an attempt that nobody wants any more.
//!
//! The first poll does everything up to the first command; nothing is sent before. An [`Attempt`] is armed before its
//! first send, so wherever the future is dropped, its token is compensated for in the background. That is why the
//! acquisition can run in the caller's own task, without the cost of another one.

use std::borrow::Cow;
use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::background::Counted;
use crate::clock::{Moment, needs_runtime};
use crate::error::{Busy, InvalidKey, LockError, Occupant, Reentrant, Unavailable};
use crate::events;
use crate::gate::{Entry, News, Turn};
use crate::grant::{BURIAL, Begun, Grant};
use crate::held;
use crate::key::LockName;
use crate::manager::{Inner, LockManager};
use crate::release::release_in_background;
use crate::settings::{Plan, Settings};
use crate::store::{Acquire, Acquired, Release, StoreError, StoreErrorKind, Token};

/// Bounds of the pause between two tries while the server cannot be asked.
const OUTAGE_PAUSE: std::ops::Range<Duration> = Duration::from_millis(20)..Duration::from_millis(250);

/// A reply that leaves less than this share of the ttl is not worth starting on.
const LEAST_SHARE: u32 = 10;

/// How long a command may take whose turn comes at the very end of the budget.
const LAST_LOOK: Duration = Duration::from_millis(20);

/// How much later than the holder's expiry a waiter looks, so that it does not come a moment too early.
const AFTER_EXPIRY: Duration = Duration::from_millis(1);

/// What a call wants, with everything decided that can be decided without the server.
#[derive(Debug)]
pub(crate) struct Intent {
    inner: Arc<Inner>,
    name: Arc<LockName>,
    plan: Plan,
    function: Cow<'static, str>,
}

/// How a call came to its lease.
pub(crate) enum Holding {
    /// It is the holder.
    Own(Arc<Grant>),
    /// Its task was the holder already, and re-entrance is allowed.
    Shared(Arc<Grant>),
}

impl Holding {
    pub(crate) fn grant(&self) -> &Arc<Grant> {
        match self {
            Self::Own(grant) | Self::Shared(grant) => grant,
        }
    }
}

impl Intent {
    pub(crate) fn new(
        manager: &LockManager,
        key: &str,
        settings: &Settings,
        function: Cow<'static, str>,
    ) -> Result<Self, LockError> {
        let inner = manager.inner();
        Ok(Self {
            inner: inner.clone(),
            name: inner.namespace.name(key)?,
            plan: settings.plan(&inner.defaults)?,
            function,
        })
    }

    /// Gets the lease, or says why not.
    ///
    /// # Cancel safety
    ///
    /// Dropped at any point, it leaves no key behind: what may have been sent is taken back in the background.
    pub(crate) async fn acquire(self) -> Result<Holding, LockError> {
        self.inner.open()?;
        if let Some(grant) = held::find(&self.inner, &self.name).filter(|grant| grant.is_held()) {
            return if self.plan.reentrant {
                Ok(Holding::Shared(grant))
            } else {
                Err(Reentrant::new(self.name.key.clone(), &grant.function).into())
            };
        }
        needs_runtime()?;
        let budget = Budget::new(&self);
        let turn = self.pass_gate(&budget).await?;
        self.attempt(&budget, turn).await.map(Holding::Own)
    }

    /// Waits for the process's turn. `None`: a single try that may ask the server beside whoever has the turn.
    async fn pass_gate(&self, budget: &Budget<'_>) -> Result<Option<Turn>, LockError> {
        let gate = &self.inner.gate;
        if self.plan.wait == Some(Duration::ZERO) {
            return match gate.try_enter(&self.name.wire) {
                Ok(turn) => Ok(Some(turn)),
                Err((News::HeldHere(grant), _)) if grant.upgrade().is_some_and(|grant| grant.is_held()) => {
                    Err(self.busy(held_here(&grant), budget))
                }
                Err((News::HeldElsewhere(occupant), _)) => Err(self.busy(occupant, budget)),
                Err((News::Failing(error), _)) => Err(error),
                // Whoever waits for the turn comes first.
                Err((News::HeldHere(_), true) | (News::Passed, _)) => Err(self.busy(Occupant::default(), budget)),
                // It is being released, or nothing is known yet: only the server can tell.
                Err((News::HeldHere(_), false) | (News::Asking, _)) => Ok(None),
            };
        }
        match gate.enter(&self.name.wire) {
            Entry::Turn(turn) => Ok(Some(turn)),
            Entry::Queued(turn) => {
                match budget.bound(turn, || matches!(gate.news(&self.name.wire), News::Asking)).await {
                    Some(Ok(turn)) => Ok(Some(turn)),
                    // The sender is only dropped with the gate itself.
                    Some(Err(_)) => Ok(None),
                    None => Err(match gate.news(&self.name.wire) {
                        News::Failing(error) => error,
                        News::Asking => Unavailable::new(
                            "another task of this process asked for the same key and had no answer either",
                        )
                        .into(),
                        News::HeldHere(grant) => self.busy(held_here(&grant), budget),
                        News::HeldElsewhere(occupant) => self.busy(occupant, budget),
                        News::Passed => self.busy(Occupant::default(), budget),
                    }),
                }
            }
        }
    }

    /// Asks the server until it grants the lock or the budget is spent.
    async fn attempt(&self, budget: &Budget<'_>, turn: Option<Turn>) -> Result<Arc<Grant>, LockError> {
        let mut attempt = Attempt::new(self);
        let mut pause = OUTAGE_PAUSE.start;
        let mut resent = false;
        let mut last_seen = None;
        loop {
            self.inner.open()?;
            let sent_at = self.inner.clock.now();
            // Only the answer right before this one may speak for it.
            let just_seen = last_seen.take();
            let limit = budget.command_limit();
            match attempt.send(limit).await {
                Ok(Acquired::Granted { fencing_token }) => {
                    if let Some(begun) = attempt.into_lease(fencing_token, sent_at) {
                        return self.begin(Grant::new(begun, turn), sent_at);
                    }
                    let late = LockError::from(Unavailable::new(
                        "the reply that granted the lock came so late that little of the lease was left; the key was given back",
                    ));
                    if budget.one_try || budget.nearly_spent() {
                        return Err(late);
                    }
                    events::waiting_through_outage(&self.name.key, &late);
                    tell(&turn, News::Failing(late));
                    attempt = Attempt::new(self);
                    self.rest(&mut pause, budget).await;
                }
                Ok(Acquired::Held(occupant)) => {
                    (resent, pause) = (false, OUTAGE_PAUSE.start);
                    if budget.spent() {
                        return Err(self.busy(occupant, budget));
                    }
                    let expires_in =
                        occupant.retry_after.map_or(Duration::MAX, |left| left.saturating_add(AFTER_EXPIRY));
                    tell(&turn, News::HeldElsewhere(occupant.clone()));
                    last_seen = Some(occupant);
                    tokio::select! {
                        biased;
                        () = self.inner.closing() => {}
                        () = self.inner.store.wake_up(&self.name, expires_in.min(budget.left())) => {}
                    }
                }
                // Only a token that was given up is buried; a new one starts afresh.
                Ok(Acquired::Dead) => attempt = Attempt::new(self),
                Ok(Acquired::Foreign(what)) => return Err(InvalidKey::new(&*self.name.key, what).into()),
                Err(error) if error.kind != StoreErrorKind::Unavailable => return Err(error.into()),
                // The budget cut the last look at a key that was held; so short a silence is no outage yet.
                Err(error)
                    if error.unanswered
                        && budget.spent()
                        && just_seen.is_some()
                        && limit < self.inner.response_timeout / 2 =>
                {
                    return Err(self.busy(just_seen.unwrap_or_default(), budget));
                }
                // The first command after a broken connection fails, the next one finds a new connection.
                Err(_) if !resent && !budget.nearly_spent() => resent = true,
                Err(error) => {
                    let error = LockError::from(error);
                    if budget.one_try || budget.nearly_spent() {
                        return Err(error);
                    }
                    events::waiting_through_outage(&self.name.key, &error);
                    tell(&turn, News::Failing(error));
                    // What was sent is compensated for, so its token is dead.
                    attempt = Attempt::new(self);
                    self.rest(&mut pause, budget).await;
                }
            }
        }
    }

    /// Puts a fresh lease under the watchdog's eyes, unless the manager was shut down in the meantime: a shutdown ends the
    /// leases that it finds there, and this one it may not have found.
    fn begin(&self, grant: Arc<Grant>, sent_at: Moment) -> Result<Arc<Grant>, LockError> {
        self.inner.watchdog.watch(&grant, sent_at);
        if let Err(closed) = self.inner.open() {
            release_in_background(&grant);
            return Err(closed);
        }
        Ok(grant)
    }

    /// The pause between two tries while the server cannot be asked.
    async fn rest(&self, pause: &mut Duration, budget: &Budget<'_>) {
        let rest = pause.mul_f64(0.5 + fastrand::f64() / 2.0).min(budget.left());
        tokio::select! {
            biased;
            () = self.inner.closing() => {}
            () = self.inner.clock.sleep_until(self.inner.clock.now().after(rest)) => {}
        }
        *pause = (*pause * 2).min(OUTAGE_PAUSE.end);
    }

    fn busy(&self, occupant: Occupant, budget: &Budget<'_>) -> LockError {
        Busy::new(self.name.key.clone(), occupant, budget.used()).into()
    }
}

fn tell(turn: &Option<Turn>, news: News) {
    if let Some(turn) = turn {
        turn.tell(news);
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

    fn spent(&self) -> bool {
        self.left().is_zero()
    }

    /// No further try fits in. A single try has its resend, within the response time-out.
    fn nearly_spent(&self) -> bool {
        if self.one_try { self.used() >= self.inner.response_timeout } else { self.left() < OUTAGE_PAUSE.start }
    }

    /// How long the next command may take.
    fn command_limit(&self) -> Duration {
        let limit = self.inner.response_timeout;
        if self.one_try { limit.saturating_sub(self.used()) } else { limit.min(self.left().max(LAST_LOOK)) }
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

/// One token and what was sent with it. Dropped while the server may know it, it is taken back in the background.
struct Attempt<'a> {
    intent: &'a Intent,
    request: Acquire,
    /// How many commands left without an answer so far.
    unanswered: u32,
    granted: bool,
    /// While the server may know the token, a shutdown waits for what becomes of it.
    counted: Option<Counted>,
}

impl<'a> Attempt<'a> {
    fn new(intent: &'a Intent) -> Self {
        let holder = format!("{} {}", intent.inner.process, printable(&intent.function));
        let request = Acquire {
            name: intent.name.clone(),
            token: Token::random(),
            expiry: intent.inner.defaults.expiry(intent.plan.ttl),
            holder: holder.into(),
        };
        Self { intent, request, unanswered: 0, granted: false, counted: None }
    }

    async fn send(&mut self, limit: Duration) -> Result<Acquired, StoreError> {
        // Counted before the send: a future dropped while it waits has an unanswered command.
        self.unanswered += 1;
        self.counted.get_or_insert_with(|| self.intent.inner.background.count());
        let answer = self.intent.inner.store.acquire(&self.request, limit).await;
        if !answer.as_ref().is_err_and(|error| error.unanswered) {
            self.unanswered -= 1;
        }
        self.granted = matches!(answer, Ok(Acquired::Granted { .. }));
        if !self.granted && self.unanswered == 0 {
            self.counted = None;
        }
        answer
    }

    /// Turns a granted attempt into a lease, unless too little of it is left; then it is given back.
    fn into_lease(mut self, fencing_token: u64, sent_at: Moment) -> Option<Begun> {
        let Intent { inner, name, plan, function } = self.intent;
        let deadline = sent_at.after(inner.defaults.validity(plan.ttl));
        let granted_at = inner.clock.now();
        if deadline.since(granted_at) < plan.ttl / LEAST_SHARE {
            return None;
        }
        // From here on the lease answers for the token.
        let bury = self.unanswered > 0;
        (self.granted, self.unanswered) = (false, 0);
        Some(Begun {
            inner: inner.clone(),
            name: name.clone(),
            token: self.request.token,
            fencing_token,
            plan: *plan,
            function: function.clone(),
            granted_at,
            deadline,
            bury,
        })
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if !self.granted && self.unanswered == 0 {
            return;
        }
        let ttl = self.intent.inner.defaults.expiry(self.intent.plan.ttl);
        let request = Release {
            name: self.request.name.clone(),
            token: self.request.token,
            keep: None,
            bury: (self.unanswered > 0).then(|| ttl.max(BURIAL)),
        };
        self.intent.inner.release_in_background(request, ttl, None);
    }
}

/// A function's name as one word without control characters, as the holder's description wants it.
fn printable(function: &str) -> String {
    function.chars().map(|c| if c.is_whitespace() || c.is_control() { '_' } else { c }).collect()
}

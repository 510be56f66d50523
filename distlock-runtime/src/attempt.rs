//! One token and what was sent with it, until a lease answers for it or it is taken back.

use std::time::Duration;

use crate::acquire::Intent;
use crate::background::Counted;
use crate::clock::Moment;
use crate::grant::{BURIAL, Begun};
use crate::hand_on::{HandOn, reserved_for};
use crate::store::{Acquire, Acquired, Description, FencingTokens, Release, StoreError, Token, Waiting};

/// A reply that leaves less than this share of the ttl is not worth starting on.
const LEAST_SHARE: u32 = 10;

/// One token and what was sent with it. Dropped while the server may know it, it is taken back in the background.
pub(crate) struct Attempt<'a> {
    intent: &'a Intent,
    request: Acquire,
    /// How many commands left without an answer so far.
    unanswered: u32,
    granted: bool,
    /// It stands in line on the server.
    queued: bool,
    /// It stands on some of several servers.
    leftovers: bool,
    /// Another attempt of the same call comes after it.
    waits_on: bool,
    /// While the server may know the token, a shutdown waits for what becomes of it.
    counted: Option<Counted>,
}

impl<'a> Attempt<'a> {
    pub(crate) fn new(intent: &'a Intent) -> Self {
        Self::behind(intent, None)
    }

    /// Gives this token up, and goes on with a new one.
    pub(crate) fn give_back(mut self) -> Self {
        self.waits_on = true;
        Self::behind(self.intent, Some(self.request.token))
    }

    /// The next attempt after the one with this token, which is given up.
    pub(crate) fn behind(intent: &'a Intent, previous: Option<Token>) -> Self {
        let holder = Description { process: intent.inner.process.clone(), function: intent.function.clone() };
        let request = Acquire {
            names: intent.names.clone(),
            token: Token::random(),
            expiry: intent.inner.defaults.expiry(intent.plan.ttl),
            holder,
            wait: None,
            reserve: 1,
            previous,
        };
        Self {
            intent,
            request,
            unanswered: 0,
            granted: false,
            queued: false,
            leftovers: false,
            waits_on: false,
            counted: None,
        }
    }

    pub(crate) fn token(&self) -> Token {
        self.request.token
    }

    /// Asks for the keys, or for a place in line.
    pub(crate) async fn send(&mut self, wait: Option<Waiting>, limit: Duration) -> Result<Acquired, StoreError> {
        self.request.wait = wait;
        let Intent { inner, names, .. } = self.intent;
        let may_be_handed_on = inner.store.hands_on() && names.len() == 1;
        let waiting = if may_be_handed_on { inner.gate.waiting(&names.first().wire) } else { 0 };
        let reserve = reserved_for(waiting);
        // An earlier question of this token may have been granted unheard, with as many as it asked for.
        self.request.reserve = if self.unanswered > 0 { reserve.min(self.request.reserve) } else { reserve };
        // Counted before the send: a future dropped while it waits has an unanswered command.
        self.unanswered += 1;
        self.counted.get_or_insert_with(|| self.intent.inner.background.count());
        let answer = self.intent.inner.store.acquire(&self.request, limit).await;
        if !answer.as_ref().is_err_and(|error| error.unanswered) {
            self.unanswered -= 1;
        }
        self.granted = matches!(answer, Ok(Acquired::Granted { .. } | Acquired::Unacknowledged(_)));
        match &answer {
            Ok(Acquired::Granted { .. } | Acquired::Unacknowledged(_)) => self.queued = false,
            Ok(Acquired::Held { ticket, leftovers, .. }) => {
                (self.queued, self.leftovers) = (ticket.is_some(), *leftovers);
            }
            Ok(Acquired::Contested { .. }) => self.leftovers = true,
            Ok(Acquired::Foreign { leftovers, .. }) => self.leftovers = *leftovers,
            // What stood in line still does.
            Ok(Acquired::Dead) | Err(_) => {}
        }
        if !self.may_stand() {
            self.counted = None;
        }
        answer
    }

    /// Whether a server may know the token.
    fn may_stand(&self) -> bool {
        self.granted || self.queued || self.leftovers || self.unanswered > 0
    }

    /// Turns a granted attempt into a lease, unless too little of it is left; then it is given back.
    pub(crate) fn into_lease(
        mut self,
        fencing_tokens: FencingTokens,
        reserved: bool,
        sent_at: Moment,
    ) -> Option<Begun> {
        let Intent { inner, names, plan, function } = self.intent;
        let deadline = sent_at.after(inner.defaults.validity(plan.ttl));
        let granted_at = inner.clock.now();
        if deadline.since(granted_at) < plan.ttl / LEAST_SHARE {
            return None;
        }
        // From here on the lease answers for the token.
        let bury = self.unanswered > 0;
        (self.granted, self.queued, self.leftovers, self.unanswered) = (false, false, false, 0);
        Some(Begun {
            inner: inner.clone(),
            names: names.clone(),
            token: self.request.token,
            fencing_tokens,
            plan: *plan,
            function: function.clone(),
            granted_at,
            deadline,
            life: Duration::ZERO,
            bury,
            hand_on: HandOn::of_acquisition(if reserved { self.request.reserve } else { 1 }, granted_at),
            counted: self.counted.take(),
        })
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if !self.may_stand() {
            return;
        }
        let ttl = self.intent.inner.defaults.expiry(self.intent.plan.ttl);
        let entry_life = self.request.wait.map_or(Duration::ZERO, |wait| wait.life);
        let request = Release {
            names: self.request.names.clone(),
            token: self.request.token,
            keep: None,
            bury: (self.unanswered > 0).then(|| ttl.max(BURIAL)),
            waits_on: self.waits_on,
        };
        self.intent.inner.release_in_background(request, ttl.max(entry_life), None);
    }
}

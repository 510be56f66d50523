//! Handing a key on inside the process: the next task in line gets it without asking the server.
//!
//! The server goes on seeing the first holder's token; whoever has the key last gives it back. Each lease has a fencing
//! token of its own, out of a range that was reserved with the first one, and inherits the deadline: nothing that happens
//! here makes the key live longer. A chain of hand-ons is short, in number and in time, so that waiters of other
//! processes do not notice it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::acquire::Intent;
use crate::background::Counted;
use crate::clock::Moment;
use crate::gate::Turn;
use crate::grant::{BURIAL, Begun, Grant};
use crate::key::Names;
use crate::manager::Inner;
use crate::store::{FencingTokens, Release, Token};

/// The most fencing tokens that are reserved with a key: one for the first holder and one for each hand-on.
const MOST_RESERVED: usize = 256;

/// How many fencing tokens to reserve for a key that so many other tasks of the process wait for. Each of them may come
/// back for more. In proportion, because the counter follows the clock in microseconds, and must not outrun it.
pub(crate) fn reserved_for(waiting: usize) -> u32 {
    let reserved = waiting.saturating_mul(4).min(MOST_RESERVED);
    u32::try_from(reserved).unwrap_or(1).max(1)
}

/// For how long after its acquisition a key is handed on.
const CHAIN: Duration = Duration::from_millis(10);

/// What a lease needs to hand its key on.
#[derive(Clone, Debug)]
pub(crate) struct HandOn {
    chain: Arc<Chain>,
    /// How many more hand-ons there are fencing tokens for.
    left: u32,
}

/// All leases of one acquisition.
#[derive(Debug)]
struct Chain {
    /// No hand-on after this.
    ends_at: Moment,
    on_its_way: Mutex<OnItsWay>,
}

#[derive(Debug, Default)]
struct OnItsWay {
    /// The key, between two leases.
    estate: Option<Estate>,
    /// Somebody will look when the chain ends.
    watched: bool,
}

/// A key that the server holds for this process and that no lease answers for. Dropped, it is given back.
#[derive(Debug)]
pub(crate) struct Estate {
    inner: Arc<Inner>,
    names: Arc<Names>,
    token: Token,
    fencing_token: u64,
    hand_on: HandOn,
    deadline: Moment,
    /// How long the key may live on the server.
    life: Duration,
    bury: bool,
    /// `false` once a lease answers for it.
    unclaimed: bool,
    /// A shutdown waits for it. Dropped last, when the background has counted its own.
    counted: Option<Counted>,
}

/// What the next task in line finds with its turn.
#[derive(Debug)]
pub(crate) struct Inheritance(Arc<Chain>);

impl HandOn {
    /// For a key that is granted now with `reserved` fencing tokens. `None` if there is none to spare.
    pub(crate) fn of_acquisition(reserved: u32, granted_at: Moment) -> Option<Self> {
        let left = reserved.checked_sub(1).filter(|left| *left > 0)?;
        let chain = Chain { ends_at: granted_at.after(CHAIN), on_its_way: Mutex::default() };
        Some(Self { chain: Arc::new(chain), left })
    }
}

impl Chain {
    fn on_its_way(&self) -> MutexGuard<'_, OnItsWay> {
        // Nothing that can panic runs under the lock, so a poisoned state is still whole.
        self.on_its_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gives the key of a lease that has just ended to the next task in line, with its turn. `Err` gives the turn back: the
/// key must be released.
///
/// `deadline` is that of the lease before it ended. What the lease leaves behind (`min_hold`, `keep`) is for the server.
pub(crate) fn hand_on(grant: &Arc<Grant>, request: &Release, deadline: Moment, turn: Turn) -> Result<(), Turn> {
    let Some(hand_on) = grant.hand_on.as_ref().filter(|hand_on| hand_on.left > 0) else { return Err(turn) };
    let inner = &grant.inner;
    let now = inner.clock.now();
    let is_plain = request.keep.is_none() && grant.plan.renew_every.is_some();
    if !is_plain || now >= hand_on.chain.ends_at || inner.open().is_err() {
        return Err(turn);
    }
    if !turn.heir().is_some_and(|ttl| is_enough(deadline.since(now), ttl)) {
        return Err(turn);
    }
    let estate = Estate {
        inner: inner.clone(),
        names: grant.names.clone(),
        token: grant.token,
        fencing_token: grant.fencing_tokens.first + 1,
        hand_on: HandOn { chain: hand_on.chain.clone(), left: hand_on.left - 1 },
        deadline,
        life: grant.longest_life(),
        bury: request.bury.is_some(),
        unclaimed: true,
        counted: Some(inner.background.count()),
    };
    let is_watched = {
        let mut on_its_way = hand_on.chain.on_its_way();
        on_its_way.estate = Some(estate);
        std::mem::replace(&mut on_its_way.watched, true)
    };
    if !is_watched {
        // Whoever has the turn may not be polled for a long time.
        let (inner, chain) = (inner.clone(), hand_on.chain.clone());
        let job = async move {
            inner.clock.sleep_until(chain.ends_at).await;
            let unclaimed = {
                let mut on_its_way = chain.on_its_way();
                // Whoever hands on at this very moment finds that nobody looks any more.
                on_its_way.watched = false;
                on_its_way.estate.take()
            };
            drop(unclaimed);
        };
        grant.inner.background.spawn(job);
    }
    turn.bequeath(Inheritance(hand_on.chain.clone()));
    Ok(())
}

/// Whether a lease with this ttl may begin on what is left of another one: then its first renewal comes in time.
fn is_enough(left: Duration, ttl: Duration) -> bool {
    left >= ttl / 3 * 2
}

impl Inheritance {
    /// The key, unless it was given back in the meantime.
    pub(crate) fn claim(self) -> Option<Estate> {
        self.0.on_its_way().estate.take()
    }
}

impl Drop for Inheritance {
    fn drop(&mut self) {
        // Taken out first: giving it back must not find the chain locked.
        let unclaimed = self.0.on_its_way().estate.take();
        drop(unclaimed);
    }
}

impl Estate {
    /// The next lease, if enough is left for it; otherwise the key is given back.
    pub(crate) fn into_lease(mut self, intent: &Intent) -> Option<Begun> {
        let granted_at = self.inner.clock.now();
        if !is_enough(self.deadline.since(granted_at), intent.plan.ttl) || self.inner.open().is_err() {
            return None;
        }
        self.unclaimed = false;
        Some(Begun {
            inner: self.inner.clone(),
            // The same key, perhaps under other words of the caller.
            names: intent.names.clone(),
            token: self.token,
            fencing_tokens: FencingTokens { first: self.fencing_token, more: Box::default() },
            plan: intent.plan,
            function: intent.function.clone(),
            granted_at,
            deadline: self.deadline,
            life: self.life,
            bury: self.bury,
            hand_on: Some(self.hand_on.clone()),
            counted: self.counted.take(),
        })
    }
}

impl Drop for Estate {
    fn drop(&mut self) {
        if self.unclaimed {
            let (names, token) = (self.names.clone(), self.token);
            let bury = self.bury.then(|| self.life.max(BURIAL));
            self.inner.release_in_background(
                Release { names, token, keep: None, bury, waits_on: false },
                self.life,
                None,
            );
        }
    }
}

//! Giving a key back: one awaited attempt, then on in the background until it is answered or can no longer matter.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::needs_runtime;
use crate::error::LockError;
use crate::events;
use crate::gate::Turn;
use crate::grant::{BURIAL, End, Grant};
use crate::manager::Inner;
use crate::store::{Lane, Release as Request, Released};

/// Bounds of the pause between two tries in the background.
const PAUSE: std::ops::Range<Duration> = Duration::from_millis(20)..Duration::from_millis(250);

/// How a lease came to its end when its holder gave it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Release {
    /// It was ours until now.
    Released,
    /// It had ended before.
    AlreadyLost,
}

/// Ends the lease at once, and gives the key back as the future is polled.
///
/// # Cancel safety
///
/// The release goes on in the background if the future is dropped, polled or not, or is not answered in time.
pub(crate) fn release(grant: &Arc<Grant>) -> impl Future<Output = Result<Release, LockError>> + Send + use<> {
    let unfinished = Unfinished::begin(grant);
    async move {
        let Some(mut unfinished) = unfinished else { return Ok(Release::AlreadyLost) };
        // Without a runtime to wait in it is the background's from the start.
        needs_runtime()?;
        let inner = unfinished.grant.inner.clone();
        match inner.store.release(&unfinished.request, Lane::Awaited, inner.response_timeout).await {
            Ok(answer) => {
                unfinished.answered = true;
                Ok(match answer {
                    Released::Deleted => Release::Released,
                    Released::Absent | Released::Stolen => Release::AlreadyLost,
                })
            }
            Err(error) => {
                events::release_unanswered(&unfinished.request.name.key, &error.text);
                Err(error.into())
            }
        }
    }
}

/// Ends the lease and gives the key back without anybody waiting. Never panics and never blocks, wherever it is called.
pub(crate) fn release_in_background(grant: &Arc<Grant>) {
    drop(Unfinished::begin(grant));
}

/// A release that is not answered yet. Dropped, it goes on in the background.
struct Unfinished {
    grant: Arc<Grant>,
    request: Request,
    turn: Option<Turn>,
    answered: bool,
}

impl Unfinished {
    /// Ends the lease. `None` if it had ended before.
    fn begin(grant: &Arc<Grant>) -> Option<Self> {
        grant.end(End::ByHolder).then(|| Self {
            grant: grant.clone(),
            request: grant.release_request(),
            turn: grant.take_turn(),
            answered: false,
        })
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.answered {
            self.grant.inner.release_in_background(self.request.clone(), self.grant.plan.ttl, self.turn.take());
        }
    }
}

impl Inner {
    /// Sends a compare-and-delete until it is answered or the key cannot be there any more.
    ///
    /// The turn at the gate is given up after the first try, answered or not: if the key is still there, the next task
    /// finds that out from the server.
    pub(crate) fn release_in_background(self: &Arc<Self>, request: Request, ttl: Duration, turn: Option<Turn>) {
        let inner = self.clone();
        self.background.spawn(async move { inner.release_until_answered(request, ttl, turn).await });
    }

    pub(crate) async fn release_until_answered(&self, request: Request, ttl: Duration, turn: Option<Turn>) {
        let give_up_at = self.clock.now().after(self.longest_life(&request, ttl));
        let mut turn = turn;
        let mut lane = Lane::Detached;
        let mut pause = PAUSE.start;
        loop {
            let error = match self.store.release(&request, lane, self.response_timeout).await {
                Ok(_answer) => return,
                Err(error) => error,
            };
            drop(turn.take());
            if self.clock.now() >= give_up_at {
                return events::release_given_up(&request.name.key, &error.text);
            }
            events::release_unanswered(&request.name.key, &error.text);
            if lane == Lane::Back {
                let wake_at = self.clock.now().after(pause.mul_f64(0.5 + fastrand::f64() / 2.0));
                self.clock.sleep_until(wake_at).await;
                pause = (pause * 2).min(PAUSE.end);
            }
            lane = Lane::Back;
        }
    }

    /// How long the key could still be on the server because of this token.
    fn longest_life(&self, request: &Request, ttl: Duration) -> Duration {
        let ttl = self.defaults.expiry(ttl);
        if request.bury.is_some() { ttl.max(BURIAL) } else { ttl }
    }
}

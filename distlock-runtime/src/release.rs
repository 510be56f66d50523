//! Giving a key back: one awaited attempt, then on in the background until it is answered or can no longer matter.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::background::Counted;
use crate::clock::needs_runtime;
use crate::error::LockError;
use crate::events;
use crate::gate::{News, Turn};
use crate::grant::{BURIAL, End, Grant};
use crate::hand_on::hand_on;
use crate::manager::Inner;
use crate::store::{Lane, Release as Request, Released};

/// Bounds of the pause between two tries in the background.
const PAUSE: std::ops::Range<Duration> = Duration::from_millis(20)..Duration::from_millis(250);

/// The longest that one try in the background waits for its answer.
const LONGEST_LIMIT: Duration = Duration::from_secs(5);

/// How a lease came to its end when its holder gave it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// It was ours until now.
    Released,
    /// It had ended before.
    AlreadyLost,
}

/// Ends the lease at once, and gives the key back as the future is polled. With `keep` it leaves the key taken for that
/// long, owned by nobody, if it is still ours.
///
/// # Cancel safety
///
/// The release goes on in the background if the future is dropped, polled or not, or is not answered in time.
pub(crate) fn release(
    grant: &Arc<Grant>,
    keep: Option<Duration>,
) -> impl Future<Output = Result<Release, LockError>> + Send + use<> {
    let begun = Unfinished::begin(grant, keep);
    async move {
        let mut unfinished = match begun {
            Ok(unfinished) => unfinished,
            Err(release) => return Ok(release),
        };
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
                events::release_unanswered(&unfinished.request.names.first().key, &error.text);
                let error = LockError::from(error);
                // Others of this process that want the key are not told that it is busy: nobody has it any more.
                if let Some(turn) = &unfinished.turn {
                    turn.tell(News::Failing(error.clone()));
                }
                Err(error)
            }
        }
    }
}

/// Ends the lease and gives the key back without anybody waiting. Never panics and never blocks, wherever it is called.
pub(crate) fn release_in_background(grant: &Arc<Grant>) {
    drop(Unfinished::begin(grant, None));
}

/// A release that is not answered yet. Dropped, it goes on in the background.
struct Unfinished {
    grant: Arc<Grant>,
    request: Request,
    turn: Option<Turn>,
    answered: bool,
    /// A shutdown waits for it. Dropped last, when the background has counted its own.
    _counted: Counted,
}

impl Unfinished {
    /// Ends the lease, and hands the key on inside the process if that may be. `Err`: nothing is to be sent, for this reason.
    fn begin(grant: &Arc<Grant>, keep: Option<Duration>) -> Result<Self, Release> {
        let deadline = grant.deadline();
        if !grant.end(End::ByHolder) {
            return Err(Release::AlreadyLost);
        }
        let (mut request, mut turn) = (grant.release_request(), grant.take_turn());
        // What is left of `min_hold` may be longer.
        request.keep = request.keep.max(keep);
        if let Some(given) = turn.take() {
            turn = match hand_on(grant, &request, deadline, given) {
                Ok(()) => return Err(Release::Released),
                Err(kept) => Some(kept),
            };
        }
        let _counted = grant.inner.background.count();
        Ok(Self { grant: grant.clone(), request, turn, answered: false, _counted })
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.answered {
            let life = self.grant.longest_life();
            self.grant.inner.release_in_background(self.request.clone(), life, self.turn.take());
        }
    }
}

impl Inner {
    /// Sends a compare-and-delete until it is answered or the key, which lives at most for `life`, cannot be there any
    /// more.
    ///
    /// The turn at the gate is given up after the first try, answered or not: if the key is still there, the next task
    /// finds that out from the server.
    pub(crate) fn release_in_background(self: &Arc<Self>, request: Request, life: Duration, turn: Option<Turn>) {
        let inner = self.clone();
        self.background.spawn(async move {
            inner.release_until_answered(request, life, turn).await;
        });
    }

    /// As [`release_in_background`](Self::release_in_background), here. `true` if it was answered.
    pub(crate) async fn release_until_answered(&self, request: Request, life: Duration, turn: Option<Turn>) -> bool {
        let life = if request.bury.is_some() { life.max(BURIAL) } else { life };
        let give_up_at = self.clock.now().after(life);
        let mut turn = turn;
        let mut lane = Lane::Detached;
        let mut pause = PAUSE.start;
        let mut limit = self.response_timeout;
        let mut refused = false;
        loop {
            let error = match self.store.release(&request, lane, limit).await {
                Ok(_answer) => return true,
                Err(error) => error,
            };
            drop(turn.take());
            // What does not mend itself is told at once, and once.
            if !error.kind.is_outage() && !std::mem::replace(&mut refused, true) {
                events::release_refused(&request.names.first().key, &error.text);
            }
            if lane == Lane::Back && self.store.is_spread() {
                // The store sees to it, server by server.
                return false;
            }
            if self.clock.now() >= give_up_at {
                events::release_given_up(&request.names.first().key, &error.text);
                return false;
            }
            events::release_unanswered(&request.names.first().key, &error.text);
            if lane == Lane::Back {
                let wake_at = self.clock.now().after(pause.mul_f64(0.5 + fastrand::f64() / 2.0));
                self.clock.sleep_until(wake_at).await;
                pause = (pause * 2).min(PAUSE.end);
                // A server that answers late is given the time to; a burst of tries would only make it later.
                limit = (limit * 2).min(LONGEST_LIMIT);
            }
            lane = Lane::Back;
        }
    }
}

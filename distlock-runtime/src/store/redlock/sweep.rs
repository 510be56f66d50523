//! What was not given back on one server, because it did not answer: tried again until it does, or the key has expired.
//!
//! One task for each server, however many locks it owes an answer for.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::background::Tails;
use crate::events;
use crate::store::redis::RedisStore;
use crate::store::{Lane, LockStore, Release};

/// Bounds of the pause between two tries.
const PAUSE: std::ops::Range<Duration> = Duration::from_millis(20)..Duration::from_millis(500);

/// What one server owes.
#[derive(Debug)]
pub(super) struct Sweep {
    server: Arc<RedisStore>,
    tails: Arc<OnceLock<Tails>>,
    limit: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    left: VecDeque<Left>,
    is_running: bool,
}

/// Longer than any lease, and short enough to be added to a moment.
const FAR: Duration = Duration::from_secs(60 * 60 * 24 * 366 * 20);

#[derive(Clone, Debug)]
struct Left {
    release: Release,
    give_up_at: Instant,
}

impl Sweep {
    /// Each try waits at most `limit` for its answer.
    pub(super) fn new(server: Arc<RedisStore>, tails: Arc<OnceLock<Tails>>, limit: Duration) -> Arc<Self> {
        Arc::new(Self { server, tails, limit, state: Mutex::default() })
    }

    /// Leaves a release to be answered within `life`; after that the key has expired.
    pub(super) fn leave(self: &Arc<Self>, release: Release, life: Duration) {
        let mut state = self.lock();
        let give_up_at = Instant::now() + life.min(FAR);
        state.left.push_back(Left { release, give_up_at });
        let begins = !std::mem::replace(&mut state.is_running, true);
        drop(state);
        if begins {
            // Made before the task: one that is dropped without ever having run has ended, too.
            let running = Running { sweep: self.clone(), interrupted: true };
            match self.tails.get() {
                Some(tails) => tails.spawn(running.run()),
                None => drop(tokio::spawn(running.run())),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs under the lock, so a poisoned state is still whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task. If its runtime ends first, the next release that is left starts another one.
struct Running {
    sweep: Arc<Sweep>,
    interrupted: bool,
}

impl Running {
    async fn run(mut self) {
        let mut pause = PAUSE.start;
        while let Some(next) = self.sweep.first() {
            match self.sweep.server.release(&next.release, Lane::Back, self.sweep.limit).await {
                Ok(_) => {
                    self.sweep.done();
                    pause = PAUSE.start;
                }
                Err(error) if Instant::now() >= next.give_up_at => {
                    self.sweep.done();
                    events::release_given_up(&next.release.names.first().key, &error.text);
                }
                Err(_) => {
                    sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
                    pause = (pause * 2).min(PAUSE.end);
                }
            }
        }
        self.interrupted = false;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.interrupted {
            self.sweep.lock().is_running = false;
        }
    }
}

impl Sweep {
    /// The first one. It stays until it is done, for its task may be dropped in the middle. If there is none, the task ends.
    fn first(&self) -> Option<Left> {
        let mut state = self.lock();
        let first = state.left.front().cloned();
        state.is_running = first.is_some();
        first
    }

    /// The first one is answered, or given up.
    fn done(&self) {
        self.lock().left.pop_front();
    }
}

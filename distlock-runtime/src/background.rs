//! Where work goes that nobody awaits: releases after a drop, compensations, and on real servers the watchdog.
//!
//! A manager for a real server has a thread of its own, so that this work goes on whatever becomes of the user's
//! runtime, and can be handed over from anywhere: a destructor outside of any runtime, another runtime, an unwinding
//! task. The in-memory store answers at once, so its work is done on the spot.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};

use crate::error::{LockError, Unavailable};
use crate::watchdog::Watchdog;

/// How long the thread outlives its manager to finish releases.
const LINGER: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Background {
    place: Place,
    /// How many jobs are under way.
    jobs: Arc<watch::Sender<usize>>,
}

#[derive(Debug)]
enum Place {
    Runtime {
        runtime: Handle,
        /// Dropped with the manager: the sign to end for a thread of its own.
        _alive: Option<oneshot::Sender<()>>,
    },
    OnTheSpot,
}

impl Background {
    pub(crate) fn on_the_spot() -> Self {
        Self { place: Place::OnTheSpot, jobs: Arc::new(watch::Sender::new(0)) }
    }

    /// Leaves the work to a runtime that is there already.
    #[cfg(feature = "testing")]
    pub(crate) fn on(runtime: Handle) -> Self {
        Self { place: Place::Runtime { runtime, _alive: None }, jobs: Arc::new(watch::Sender::new(0)) }
    }

    /// Starts the manager's thread, with the watchdog on it.
    pub(crate) fn thread(watchdog: Arc<Watchdog>) -> Result<Self, LockError> {
        let jobs = Arc::new(watch::Sender::new(0));
        let (alive, manager_gone) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Unavailable::new(format!("the watchdog's runtime cannot be built: {error}")))?;
        let handle = runtime.handle().clone();
        let idle = jobs.subscribe();
        std::thread::Builder::new()
            .name("distlock".into())
            .spawn(move || runtime.block_on(serve(watchdog, manager_gone, idle)))
            .map_err(|error| Unavailable::new(format!("the watchdog's thread cannot be started: {error}")))?;
        Ok(Self { place: Place::Runtime { runtime: handle, _alive: Some(alive) }, jobs })
    }

    /// Does `job` without anybody waiting for it. Never blocks and never panics, wherever it is called.
    ///
    /// The first step is done here and now, so that what it sends stands before whatever the caller sends next.
    pub(crate) fn spawn(&self, job: impl Future<Output = ()> + Send + 'static) {
        let counted = Counted::new(self.jobs.clone());
        let mut job = Box::pin(async move {
            job.await;
            drop(counted);
        });
        let current = Handle::try_current();
        match &self.place {
            Place::Runtime { runtime, .. } => {
                // At the very end of a thread there is nothing left to enter a runtime with.
                let thread_ends = current.is_err_and(|error| error.is_thread_local_destroyed());
                if thread_ends || !is_done_by_one_step(runtime, job.as_mut()) {
                    runtime.spawn(job);
                }
            }
            Place::OnTheSpot => {
                if !poll_once(job.as_mut())
                    && let Ok(runtime) = current
                {
                    runtime.spawn(job);
                }
            }
        }
    }

    /// Completes when no job is under way.
    pub(crate) async fn idle(&self) {
        // The sender lives in `self`, so this cannot fail.
        let _ = self.jobs.subscribe().wait_for(|jobs| *jobs == 0).await;
    }

    pub(crate) fn jobs(&self) -> usize {
        *self.jobs.borrow()
    }
}

/// What the thread does: the watchdog, and whatever jobs come, until the manager has gone.
async fn serve(watchdog: Arc<Watchdog>, manager_gone: oneshot::Receiver<()>, mut jobs: watch::Receiver<usize>) {
    let guard = tokio::spawn(async move {
        // A panic in the loop would be a fault of ours; leases must be renewed all the same.
        while tokio::spawn(watchdog.clone().run()).await.is_err() {}
    });
    let _ = manager_gone.await;
    let _ = tokio::time::timeout(LINGER, jobs.wait_for(|jobs| *jobs == 0)).await;
    guard.abort();
}

/// Counts one job for as long as it lives, also when its task is dropped.
struct Counted(Arc<watch::Sender<usize>>);

impl Counted {
    fn new(jobs: Arc<watch::Sender<usize>>) -> Self {
        jobs.send_modify(|jobs| *jobs += 1);
        Self(jobs)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.send_modify(|jobs| *jobs = jobs.saturating_sub(1));
    }
}

/// Polls once, with the timers and spawns of `runtime`.
fn is_done_by_one_step(runtime: &Handle, job: Pin<&mut impl Future<Output = ()>>) -> bool {
    let _entered = runtime.enter();
    poll_once(job)
}

/// Whether one poll was enough.
fn poll_once(job: Pin<&mut impl Future<Output = ()>>) -> bool {
    job.poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

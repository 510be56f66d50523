//! Where work goes that nobody awaits: releases after a drop, compensations, and on real servers the watchdog.
//!
//! A manager for a real server has a thread of its own, so that this work goes on whatever becomes of the user's
//! runtime, and can be handed over from anywhere: a destructor outside of any runtime, another runtime, an unwinding
//! task. The in-memory store answers at once, so its work is done on the spot.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Waker};

use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};

use crate::error::{LockError, Unavailable};
use crate::events;
use crate::opaque::Opaque;
use crate::watchdog::Watchdog;

#[derive(Debug)]
pub(crate) struct Background {
    place: Place,
    /// How many jobs are under way.
    jobs: Arc<Jobs>,
}

#[derive(Debug, Default)]
struct Jobs {
    under_way: AtomicUsize,
    /// Told when no job is under way any more.
    idle: Notify,
}

#[derive(Debug)]
enum Place {
    Runtime {
        runtime: Opaque<Handle>,
        /// Dropped with the manager, and the last tail: the sign to end for a thread of its own.
        alive: Option<Arc<oneshot::Sender<()>>>,
    },
    OnTheSpot,
}

impl Background {
    pub(crate) fn on_the_spot() -> Self {
        Self { place: Place::OnTheSpot, jobs: Arc::default() }
    }

    /// Leaves the work to a runtime that is there already.
    #[cfg(feature = "testing")]
    pub(crate) fn on(runtime: Handle) -> Self {
        Self { place: Place::Runtime { runtime: Opaque::new(runtime), alive: None }, jobs: Arc::default() }
    }

    /// Starts the manager's thread, with the watchdog on it.
    pub(crate) fn thread(watchdog: Arc<Watchdog>) -> Result<Self, LockError> {
        let jobs = Arc::default();
        let (alive, manager_gone) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Unavailable::new(format!("the watchdog's runtime cannot be built: {error}")))?;
        let handle = runtime.handle().clone();
        std::thread::Builder::new()
            .name("distlock".into())
            .spawn(move || runtime.block_on(serve(watchdog, manager_gone)))
            .map_err(|error| Unavailable::new(format!("the watchdog's thread cannot be started: {error}")))?;
        Ok(Self { place: Place::Runtime { runtime: Opaque::new(handle), alive: Some(Arc::new(alive)) }, jobs })
    }

    /// Does `job` without anybody waiting for it. Never blocks and never panics, wherever it is called.
    ///
    /// The first step is done here and now, so that what it sends stands before whatever the caller sends next.
    pub(crate) fn spawn(&self, job: impl Future<Output = ()> + Send + 'static) {
        let counted = self.count();
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
                if !poll_once(job.as_mut()) {
                    match current {
                        Ok(runtime) => drop(runtime.spawn(job)),
                        Err(_) => events::background_job_dropped(),
                    }
                }
            }
        }
    }

    /// Counts as a job until it is dropped: work that somebody awaits for now, and that would become a job.
    pub(crate) fn count(&self) -> Counted {
        Counted::new(self.jobs.clone())
    }

    /// A place for work of the store's own, which must not keep the manager.
    pub(crate) fn tails(&self) -> Tails {
        let (runtime, alive) = match &self.place {
            Place::Runtime { runtime, alive } => (Some((**runtime).clone()), alive.as_ref().map(Arc::downgrade)),
            Place::OnTheSpot => (None, None),
        };
        Tails { runtime, alive: alive.unwrap_or_default(), jobs: self.jobs.clone() }
    }

    /// Completes when no job is under way.
    pub(crate) async fn idle(&self) {
        loop {
            let idle = self.jobs.idle.notified();
            let mut idle = pin!(idle);
            // Listen first, then look: a job that ends in between is not missed.
            idle.as_mut().enable();
            if self.jobs() == 0 {
                return;
            }
            idle.await;
        }
    }

    pub(crate) fn jobs(&self) -> usize {
        self.jobs.under_way.load(Ordering::Acquire)
    }
}

/// Where a store does what is left of an operation that has ended. Counts as a job, and goes on when the manager is gone.
#[derive(Clone, Debug)]
pub(crate) struct Tails {
    runtime: Option<Handle>,
    alive: Weak<oneshot::Sender<()>>,
    jobs: Arc<Jobs>,
}

impl Tails {
    /// Does `tail` without anybody waiting for it.
    pub(crate) fn spawn(&self, tail: impl Future<Output = ()> + Send + 'static) {
        let (counted, alive) = (Counted::new(self.jobs.clone()), self.alive.upgrade());
        let tail = async move {
            tail.await;
            drop((counted, alive));
        };
        match &self.runtime {
            Some(runtime) => drop(runtime.spawn(tail)),
            None => drop(tokio::spawn(tail)),
        }
    }
}

/// What the thread does: the watchdog, and whatever jobs come, until the manager has gone. A job keeps the manager, so the
/// last of them is done by then.
async fn serve(watchdog: Arc<Watchdog>, manager_gone: oneshot::Receiver<()>) {
    let guard = tokio::spawn(async move {
        // A panic in the loop would be a fault of ours; leases must be renewed all the same.
        while tokio::spawn(watchdog.clone().run(None)).await.is_err() {}
    });
    let _ = manager_gone.await;
    guard.abort();
}

/// Counts one job for as long as it lives, also when its task is dropped.
#[derive(Debug)]
pub(crate) struct Counted(Arc<Jobs>);

impl Counted {
    fn new(jobs: Arc<Jobs>) -> Self {
        jobs.under_way.fetch_add(1, Ordering::AcqRel);
        Self(jobs)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if self.0.under_way.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.idle.notify_waiters();
        }
    }
}

/// Polls once, with the timers and spawns of `runtime`.
fn is_done_by_one_step(runtime: &Handle, job: Pin<&mut impl Future<Output = ()>>) -> bool {
    let _entered = runtime.enter();
    poll_once(job)
}

/// Whether one poll was enough.
///
/// Outside of the budget that tokio gives the caller's task: a task that has spent it would otherwise send nothing.
fn poll_once(job: Pin<&mut impl Future<Output = ()>>) -> bool {
    pin!(tokio::task::unconstrained(job)).poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

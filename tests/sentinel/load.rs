//! Callers that never stop asking for locks, and what they were told when.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use distlock::{Holder, LockError, LockManager};
use tokio::task::JoinHandle;

use crate::ms;

const MANAGERS: usize = 2;
const KEYS: usize = 8;

pub(crate) const TTL: Duration = ms(3000);

/// What came of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    In,
    Unavailable,
    /// By a lease that began then, as far as the server knows.
    Busy(Option<SystemTime>),
    Lost,
    Other,
}

#[derive(Debug)]
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    told: Arc<Mutex<Vec<(Instant, Told)>>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Load {
    /// Callers of several managers on the same keys, each with a short wait, and one of each manager that asks for keys which
    /// nobody has had before: those are free on a new primary whatever it has inherited.
    pub(crate) async fn start(url: &str) -> Self {
        let (stop, told) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let mut tasks = Vec::new();
        for manager in 0..MANAGERS {
            let locks = LockManager::connect(url).await.unwrap();
            for key in 0..KEYS {
                let key = move |_| format!("load:{key}");
                tasks.push(tokio::spawn(ask(locks.clone(), key, stop.clone(), Arc::clone(&told))));
            }
            let fresh = move |call| format!("fresh:{manager}:{call}");
            tasks.push(tokio::spawn(ask(locks, fresh, stop.clone(), Arc::clone(&told))));
        }
        Self { stop, told, tasks }
    }

    pub(crate) fn told(&self) -> Vec<(Instant, Told)> {
        self.told.lock().unwrap().clone()
    }

    /// How long after `moment` the first call got in that ended after it.
    pub(crate) fn first_success(&self, moment: Instant) -> Option<Duration> {
        self.told().into_iter().find(|(at, told)| *at >= moment && *told == Told::In).map(|(at, _)| at - moment)
    }

    pub(crate) async fn stop(self) -> Vec<(Instant, Told)> {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.unwrap();
        }
        self.told.lock().unwrap().clone()
    }
}

async fn ask(
    locks: LockManager,
    key: impl Fn(u64) -> String,
    stop: Arc<AtomicBool>,
    told: Arc<Mutex<Vec<(Instant, Told)>>>,
) {
    for call in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let mut entered = None;
        let body = async |_: &distlock::Lease| {
            entered = Some(Instant::now());
            tokio::time::sleep(ms(2)).await;
        };
        let outcome = locks.lock(key(call)).ttl(TTL).wait(ms(800)).run(body).await;
        let what = match outcome {
            Ok(()) => Told::In,
            Err(LockError::Unavailable(_)) => Told::Unavailable,
            Err(LockError::Busy(busy)) => Told::Busy(busy.holder().map(Holder::since)),
            Err(LockError::Lost(_)) => Told::Lost,
            Err(error) => {
                println!("told {error:?}");
                Told::Other
            }
        };
        let at = entered.filter(|_| what == Told::In).unwrap_or_else(Instant::now);
        told.lock().unwrap().push((at, what));
        tokio::time::sleep(ms(3)).await;
    }
}

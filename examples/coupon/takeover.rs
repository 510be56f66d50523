//! `--kill`: ends one worker in the middle of a claim, by SIGKILL, and measures when the next buyer gets in.
//!
//! The dead cannot release anything. Their lock goes when its ttl is over, and a waiter must be in soon after.

use std::io;
use std::path::Path;
use std::time::Duration;

use distlock_testkit::{Held, History, Moment, Recorder};
use tokio::time::sleep;

use crate::processes::Process;
use crate::{Result, TTL, shop};

/// How soon after the end of a ttl a waiter has to be in.
const SLACK: Duration = Duration::from_millis(250);

/// The first sales go undisturbed.
const SALES_BEFORE: usize = 3;

/// How often the history is looked at; a claim takes a hundred times as long.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// After this long nothing will happen any more.
const PATIENCE: Duration = Duration::from_secs(30);

/// What came of the kill.
#[derive(Debug)]
pub(crate) struct Takeover {
    /// Name of the worker that was killed.
    pub(crate) killed: String,
    /// Who got the lock next, and how long after the kill; `None` if nobody did.
    pub(crate) next: Option<(String, Duration)>,
}

impl Takeover {
    pub(crate) fn limit() -> Duration {
        TTL + SLACK
    }

    pub(crate) fn is_in_time(&self) -> bool {
        self.next.as_ref().is_some_and(|(_, after)| *after <= Self::limit())
    }
}

/// Waits for a sale to be under way, kills the process that makes it, and waits for the next sale.
pub(crate) async fn kill_a_holder(workers: &mut [Process], shop: &Path) -> Result<Takeover> {
    let history = shop::history(shop);
    let victim = look(&history, |history| {
        let leases = history.leases();
        (leases.len() > SALES_BEFORE).then(|| leases.into_iter().next_back()).flatten().filter(|held| !held.ended)
    });
    let victim = victim.await?.ok_or("no worker was seen holding the lock; nobody was killed")?;
    let process = workers.iter_mut().find(|process| process.name == victim.process);
    let process = process.ok_or_else(|| format!("`{}` holds the lock and is no worker", victim.process))?;

    let at = Moment::now();
    process.child.start_kill()?;
    process.child.wait().await?;
    Recorder::open_as(&history, "the killer")?.died(&victim.process)?;
    if was_done(&history, &victim)? {
        return Err(format!("`{}` was done before the kill reached it; try again", victim.process).into());
    }

    let next = look(&history, |history| history.next_grant(&victim.key, at)).await?;
    Ok(Takeover { killed: victim.process, next: next.map(|held| (held.process, held.from.since(at))) })
}

/// Reads the history until `find` finds something in it; `None` when it does not.
async fn look(history: &Path, find: impl Fn(&History) -> Option<Held>) -> io::Result<Option<Held>> {
    let until = Moment::now() + PATIENCE;
    while Moment::now() < until {
        if let Some(found) = find(&History::read(history)?) {
            return Ok(Some(found));
        }
        sleep(LOOK_EVERY).await;
    }
    Ok(None)
}

fn was_done(history: &Path, victim: &Held) -> io::Result<bool> {
    Ok(History::read(history)?.leases().iter().any(|held| held.lease == victim.lease && held.ended))
}

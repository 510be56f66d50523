//! One process of the campaign: eight tasks that take the key again and again, and note how long they waited for it.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use distlock::{LockError, LockManager};
use distlock_testkit::{Moment, Recorder};

use crate::ms;

pub(crate) const TASKS: u64 = 8;
pub(crate) const TTL: std::time::Duration = ms(500);
pub(crate) const KEY: &str = "hot";

const URL: &str = "DISTLOCK_CAMPAIGN_URL";
const FOLDER: &str = "DISTLOCK_CAMPAIGN_FOLDER";
const UNTIL: &str = "DISTLOCK_CAMPAIGN_UNTIL";

/// The history of leases, and the waits, in the campaign's folder.
pub(crate) const HISTORY: &str = "history";
pub(crate) const WAITS: &str = "waits";

/// Starts this program again as a worker that takes the key until the moment given.
pub(crate) fn spawn(url: &str, folder: &Path, until: Moment) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "worker::work", "--nocapture"])
        .env(URL, url)
        .env(FOLDER, folder)
        .env(UNTIL, until.as_nanos().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// One wait, as a line: process, begin and end in nanoseconds, and what came of it.
fn note(file: &mut File, begun: Moment, outcome: &str) {
    let line = format!("{} {} {} {outcome}\n", std::process::id(), begun.as_nanos(), Moment::now().as_nanos());
    // One write, so that the lines of different processes never mix.
    file.write_all(line.as_bytes()).unwrap();
}

async fn take_the_key(locks: &LockManager, recorder: &Recorder, waits: &mut File) {
    let begun = Moment::now();
    let mut entered = false;
    let body = async |lease: &distlock::Lease| {
        note(waits, begun, "in");
        entered = true;
        let holding = recorder.granted(KEY, lease.fencing_token(), lease.remaining()).unwrap();
        tokio::time::sleep(ms(1)).await;
        holding.end().unwrap();
    };
    let outcome = locks.lock(KEY).ttl(TTL).wait(ms(60_000)).run(body).await;
    match outcome {
        Ok(()) => {}
        // It was stopped for longer than its lease.
        Err(LockError::Lost(_)) if entered => note(waits, Moment::now(), "lost"),
        Err(LockError::Lost(_)) => note(waits, begun, "lost"),
        Err(error) => note(waits, begun, &format!("refused: {error:?}")),
    }
}

/// Not a test of its own: what one process of the campaign does.
#[tokio::test]
async fn work() {
    let Ok(url) = std::env::var(URL) else { return };
    let folder = std::path::PathBuf::from(std::env::var(FOLDER).unwrap());
    let until = Moment::from_nanos(std::env::var(UNTIL).unwrap().parse().unwrap());
    let recorder = Recorder::open(folder.join(HISTORY)).unwrap();
    let locks = LockManager::builder().url(url).lazy().build().await.unwrap();
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let (locks, recorder) = (locks.clone(), recorder.clone());
            let mut waits = OpenOptions::new().append(true).create(true).open(folder.join(WAITS)).unwrap();
            tokio::spawn(async move {
                while Moment::now() < until {
                    take_the_key(&locks, &recorder, &mut waits).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    locks.shutdown(ms(2000)).await;
}

//! Several processes on one key: nobody comes in beside anybody, and nothing runs without a lease.

use std::process::{Child, Command, Stdio};

use distlock::{LockError, LockManager, distributed_lock};
use distlock_testkit::{History, Recorder, check, server_or_skip};

use crate::support::{exists, ms, until};

const URL: &str = "DISTLOCK_TEST_WORKER_URL";
const HISTORY: &str = "DISTLOCK_TEST_WORKER_HISTORY";
const CALLS: usize = 50;

/// Starts this binary again as a worker that runs the test `worker` and nothing else.
fn spawn_worker(url: &str, history: &std::path::Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "processes::worker", "--nocapture"])
        .env(URL, url)
        .env(HISTORY, history)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// What all processes call. Counts itself only under a lease that is valid.
#[distributed_lock(key = "shared:{key}", ttl = "5s", wait = "60s", lease = lease, manager = locks)]
async fn critical(locks: &LockManager, recorder: &Recorder, key: &str) -> Result<(), LockError> {
    lease.ensure_held()?;
    let holding = recorder.granted(key, lease.fencing_token(), lease.remaining()).unwrap();
    tokio::time::sleep(ms(1)).await;
    holding.end().unwrap();
    Ok(())
}

/// Not a test of its own: what one process of the others does.
#[tokio::test]
async fn worker() {
    let Ok(url) = std::env::var(URL) else { return };
    let recorder = Recorder::open(std::env::var(HISTORY).unwrap()).unwrap();
    let locks = LockManager::connect(url).await.unwrap();
    let calls: Vec<_> = (0..CALLS)
        .map(|_| {
            let (locks, recorder) = (locks.clone(), recorder.clone());
            tokio::spawn(async move { critical(&locks, &recorder, "k").await.unwrap() })
        })
        .collect();
    for call in calls {
        call.await.unwrap();
    }
}

#[tokio::test]
async fn two_hundred_calls_in_four_processes_are_exclusive() {
    let server = server_or_skip!();
    let history = server.folder().join("history");
    let workers: Vec<_> = (0..4).map(|_| spawn_worker(&server.url(), &history)).collect();
    let done =
        tokio::task::spawn_blocking(move || workers.into_iter().all(|mut worker| worker.wait().unwrap().success()));
    assert!(done.await.unwrap());
    let report = check(&History::read(&history).unwrap());
    report.assert_clean();
    assert_eq!((report.grants(), report.processes()), (4 * CALLS, 4));
    assert!(!exists(&server, "distlock:shared:k"));
}

#[tokio::test]
async fn a_killed_process_is_followed_within_its_ttl() {
    let server = server_or_skip!();
    let mut holder = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "processes::holder", "--nocapture"])
        .env(URL, server.url())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    until("the other process holds the key", ms(5000), || exists(&server, "distlock:k")).await;
    let locks = LockManager::connect(server.url()).await.unwrap();
    let waiting = tokio::spawn(locks.lock("k").wait(ms(10_000)).around(async {}));
    holder.kill().unwrap();
    holder.wait().unwrap();
    let killed = std::time::Instant::now();
    waiting.await.unwrap().unwrap();
    assert!(killed.elapsed() <= ms(1000 + 250), "{:?}", killed.elapsed());
}

/// Not a test of its own: a process that takes the key and never lets go.
#[tokio::test]
async fn holder() {
    let Ok(url) = std::env::var(URL) else { return };
    let locks = LockManager::connect(url).await.unwrap();
    locks.lock("k").ttl(ms(1000)).run(async |_| std::future::pending::<()>().await).await.unwrap();
}

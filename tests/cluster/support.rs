//! Looking at a cluster behind the library's back.

use std::future::Future;
use std::time::{Duration, Instant};

use distlock::LockManager;
use distlock_testkit::{Cluster, Reply};

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) async fn manager(cluster: &Cluster) -> LockManager {
    LockManager::connect(cluster.url()).await.unwrap()
}

pub(crate) fn exists(cluster: &Cluster, key: &str) -> bool {
    let key = format!("distlock:{key}");
    cluster.command(&key, &["EXISTS", &key]).unwrap().as_int() == Some(1)
}

/// The name of what belongs to the line of `key`: `queue` or `waiters`.
pub(crate) fn companion(key: &str, kind: &str) -> String {
    format!("{{distlock:{key}}}:{kind}")
}

/// Waits until so many stand in line.
pub(crate) async fn queued(cluster: &Cluster, key: &str, count: i64) {
    let queue = companion(key, "queue");
    until("so many stand in line", ms(5000), || {
        cluster.command(&queue, &["ZCARD", &queue]).unwrap().as_int() == Some(count)
    })
    .await;
}

/// The channels on which the waiters of `key` are told, as the server knows them.
pub(crate) fn channels(cluster: &Cluster, key: &str) -> Vec<String> {
    let waiters = companion(key, "waiters");
    let Reply::List(entries) = cluster.command(&waiters, &["HVALS", &waiters]).unwrap() else { return Vec::new() };
    entries.iter().filter_map(|entry| Some(entry.as_text()?.rsplit_once(' ')?.1.to_owned())).collect()
}

/// Whether the servers can tell waiters anything: before 7.0 they have no sharded channels. Says so if not.
pub(crate) fn can_tell(cluster: &Cluster) -> bool {
    let known = cluster.nodes()[0].command(&["COMMAND", "INFO", "SSUBSCRIBE"]).unwrap();
    let can_tell = known.as_list().is_some_and(|commands| commands.iter().any(|command| !command.is_nil()));
    if !can_tell {
        eprintln!("SKIPPED: this server has no sharded channels");
    }
    can_tell
}

/// Waits until a waiter of `key` can be told.
pub(crate) async fn told_on_a_channel(cluster: &Cluster, key: &str) {
    until("a waiter can be told", ms(5000), || channels(cluster, key).iter().any(|channel| channel != "-")).await;
}

/// Waits until `done`, looking every few milliseconds; the time it took.
pub(crate) async fn until(what: &str, limit: Duration, mut done: impl FnMut() -> bool) -> Duration {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < limit, "{what}: not within {limit:?}");
        tokio::time::sleep(ms(5)).await;
    }
    begun.elapsed()
}

/// The output of `future` and the time it took.
pub(crate) async fn timed<F: Future>(future: F) -> (F::Output, Duration) {
    let begun = Instant::now();
    let output = future.await;
    (output, begun.elapsed())
}

/// All names on all primaries.
pub(crate) fn names(cluster: &Cluster) -> Vec<String> {
    let is_primary = |node: &&distlock_testkit::Server| {
        node.command(&["ROLE"]).unwrap().as_list().is_some_and(|role| role[0].as_text() == Some("master"))
    };
    let primaries = cluster.nodes().iter().filter(is_primary);
    let keys = primaries.map(|node| node.command(&["KEYS", "*"]).unwrap());
    keys.flat_map(|keys| match keys {
        Reply::List(keys) => keys.iter().filter_map(Reply::as_text).map(str::to_owned).collect::<Vec<_>>(),
        _ => Vec::new(),
    })
    .collect()
}

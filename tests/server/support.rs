//! Looking at a server behind the library's back, and waiting for what it will show.

use std::future::Future;
use std::time::{Duration, Instant};

use distlock::{Builder, LockError, LockManager, LossCause};
use distlock_testkit::{Reply, Server};

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) async fn manager(server: &Server) -> LockManager {
    LockManager::connect(server.url()).await.unwrap()
}

/// A manager that gives up on an answer quickly, so that tests of silence are short.
pub(crate) fn impatient(server: &Server) -> Builder {
    LockManager::builder().url(server.url()).response_timeout(ms(100)).connect_timeout(ms(200))
}

/// Asks the server directly.
pub(crate) fn ask(server: &Server, parts: &[&str]) -> Reply {
    server.command(parts).unwrap()
}

pub(crate) fn exists(server: &Server, key: &str) -> bool {
    ask(server, &["EXISTS", key]).as_int() == Some(1)
}

/// Waits until `done`, looking every few milliseconds; the time it took.
pub(crate) async fn until(what: &str, limit: Duration, mut done: impl FnMut() -> bool) -> Duration {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < limit, "{what}: not within {limit:?}");
        tokio::time::sleep(ms(2)).await;
    }
    begun.elapsed()
}

/// The output of `future` and the time it took.
pub(crate) async fn timed<F: Future>(future: F) -> (F::Output, Duration) {
    let begun = Instant::now();
    let output = future.await;
    (output, begun.elapsed())
}

pub(crate) fn cause(error: &LockError) -> LossCause {
    match error {
        LockError::Lost(lost) => lost.cause(),
        other => panic!("not a lost lease: {other:?}"),
    }
}

/// The name of what belongs to the line of `key`: `queue` or `waiters`.
pub(crate) fn companion(key: &str, kind: &str) -> String {
    format!("{{distlock:{key}}}:{kind}")
}

/// Waits until so many stand in line.
pub(crate) async fn queued(server: &Server, key: &str, count: i64) {
    let queue = companion(key, "queue");
    until("so many stand in line", ms(3000), || ask(server, &["ZCARD", &queue]).as_int() == Some(count)).await;
    let known = ask(server, &["HLEN", &companion(key, "waiters")]);
    assert_eq!(known.as_int(), Some(count), "the queue and the table of waiters differ");
}

/// Nothing is left but the counter, and what ends by itself within a minute.
pub(crate) async fn nothing_is_left(server: &Server) {
    let left = || {
        let Reply::List(keys) = ask(server, &["KEYS", "*"]) else { panic!("no keys") };
        let names: Vec<_> = keys.iter().filter_map(Reply::as_text).map(str::to_owned).collect();
        names.into_iter().filter(|name| name != "{distlock}:fence" && !name.contains(":gone:")).collect::<Vec<_>>()
    };
    let begun = Instant::now();
    while !left().is_empty() {
        assert!(begun.elapsed() < ms(3000), "left: {:?}", left());
        tokio::time::sleep(ms(10)).await;
    }
    let Reply::List(burials) = ask(server, &["KEYS", "*:gone:*"]) else { panic!("no keys") };
    for burial in burials.iter().filter_map(Reply::as_text) {
        let life = ask(server, &["PTTL", burial]).as_int().unwrap();
        assert!(life != -1 && life <= 60_000, "`{burial}` lives for {life} ms");
    }
}

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

//! A server in the process, managers on it, and what is asked of both.

use std::sync::Arc;
use std::time::Duration;

use distlock::{Builder, LockManager};
use distlock_testkit::{EmbeddedServer, Reply};
use tokio::time::{Instant, sleep};

pub(crate) const ACQUIRE: &str = concat!(
    include_str!("../../distlock-runtime/src/store/redis/lua/queue.lua"),
    include_str!("../../distlock-runtime/src/store/redis/lua/acquire.lua")
);
pub(crate) const RENEW: &str = include_str!("../../distlock-runtime/src/store/redis/lua/renew.lua");
pub(crate) const RELEASE: &str = concat!(
    include_str!("../../distlock-runtime/src/store/redis/lua/queue.lua"),
    include_str!("../../distlock-runtime/src/store/redis/lua/release.lua")
);

pub(crate) type Node = Arc<EmbeddedServer>;

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn node() -> Node {
    Arc::new(EmbeddedServer::new())
}

/// Settings of a manager on the node: another process, as far as locking can tell.
pub(crate) fn on(node: &Node) -> Builder {
    let node = node.clone();
    LockManager::builder().streams(move || {
        let stream = node.connect();
        async move { Ok(stream) }
    })
}

pub(crate) async fn manager(node: &Node) -> LockManager {
    on(node).build().await.unwrap()
}

pub(crate) fn exists(node: &Node, key: &str) -> bool {
    node.command(&["EXISTS", &format!("distlock:{key}")]).unwrap() == Reply::Int(1)
}

/// Waits for the key to go, and gives the time it took.
pub(crate) async fn gone_within(node: &Node, key: &str, limit: Duration) {
    let begun = Instant::now();
    while exists(node, key) {
        assert!(begun.elapsed() <= limit, "`{key}` is still there after {:?}", begun.elapsed());
        sleep(ms(1)).await;
    }
}

/// The key can be had again, and nothing of the tests' work is under way when all managers have gone.
pub(crate) async fn all_is_well(node: &Node, key: &str, managers: impl IntoIterator<Item = LockManager>) {
    let managers: Vec<_> = managers.into_iter().collect();
    for locks in &managers {
        let lease = locks.lock(key).wait(ms(2000)).acquire().await.unwrap();
        lease.release().await.unwrap();
    }
    drop(managers);
    // The longest that a frozen connection is kept, and the longest try of a release.
    sleep(ms(70_000)).await;
    assert!(!exists(node, key));
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0, "tasks are left");
}

/// What the server knows under a name that belongs to the line of `key`: `queue` or `waiters`.
pub(crate) fn companion(key: &str, kind: &str) -> String {
    format!("{{distlock:{key}}}:{kind}")
}

/// The tokens that stand in line for the key, in their order.
pub(crate) fn line(node: &Node, key: &str) -> Vec<String> {
    let queue = node.command(&["ZRANGE", &companion(key, "queue"), "0", "-1"]).unwrap();
    queue.as_list().unwrap().iter().map(|token| token.as_text().unwrap().to_owned()).collect()
}

/// How many stand in line, by the queue and by what is known of those who wait; the two agree.
pub(crate) fn waiters(node: &Node, key: &str) -> usize {
    let known = node.command(&["HLEN", &companion(key, "waiters")]).unwrap();
    let waiting = line(node, key).len();
    assert_eq!(known, Reply::Int(i64::try_from(waiting).unwrap()), "the queue and the table of waiters differ");
    waiting
}

/// Waits until so many stand in line.
pub(crate) async fn queued(node: &Node, key: &str, count: usize) {
    let begun = Instant::now();
    while waiters(node, key) != count {
        assert!(begun.elapsed() < ms(1000), "{} instead of {count} in line", waiters(node, key));
        sleep(ms(1)).await;
    }
}

/// Polls the call until it stands in line, and no further: what a process does that is stopped there with its socket open.
pub(crate) async fn stopped_in_line<T>(node: &Node, key: &str, place: usize, call: &mut BoxedCall<T>) {
    tokio::select! {
        biased;
        _ = call.as_mut() => panic!("it did not have to wait"),
        () = queued(node, key, place) => {}
    }
}

pub(crate) type BoxedCall<T> = std::pin::Pin<Box<dyn std::future::Future<Output = T>>>;

/// Once nobody uses the locks any more and all that may be late has come, nothing is left but the counter.
pub(crate) async fn nothing_is_left(node: &Node) {
    sleep(ms(70_000)).await;
    let keys = node.command(&["KEYS", "*"]).unwrap();
    let left: Vec<_> = keys.as_list().unwrap().iter().filter_map(Reply::as_text).collect();
    assert!(left.iter().all(|key| *key == "{distlock}:fence"), "left: {left:?}");
}

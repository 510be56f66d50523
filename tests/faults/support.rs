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

pub(crate) fn ms(millis: u64) -> Duration {
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

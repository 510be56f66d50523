//! Several servers in the process, managers on all of them, and what is asked of both.

use std::sync::Arc;
use std::time::Duration;

use distlock::{Builder, LockManager};
use distlock_testkit::{EmbeddedServer, Reply};
use tokio::time::{Instant, sleep};

pub(crate) const VOTE: &str = concat!(
    include_str!("../../distlock-runtime/src/store/redis/lua/epoch.lua"),
    include_str!("../../distlock-runtime/src/store/redis/lua/queue.lua"),
    include_str!("../../distlock-runtime/src/store/redis/lua/vote.lua")
);
pub(crate) const RENEW: &str = include_str!("../../distlock-runtime/src/store/redis/lua/renew.lua");
pub(crate) const HEAL: &str = concat!(
    include_str!("../../distlock-runtime/src/store/redis/lua/epoch.lua"),
    include_str!("../../distlock-runtime/src/store/redis/lua/heal.lua")
);
pub(crate) const BOOTSTRAP: &str = concat!(
    include_str!("../../distlock-runtime/src/store/redis/lua/epoch.lua"),
    include_str!("../../distlock-runtime/src/store/redis/lua/bootstrap.lua")
);
pub(crate) const RELEASE: &str = concat!(
    include_str!("../../distlock-runtime/src/store/redis/lua/queue.lua"),
    include_str!("../../distlock-runtime/src/store/redis/lua/release.lua")
);

pub(crate) type Servers = Vec<Arc<EmbeddedServer>>;

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn servers(count: usize) -> Servers {
    EmbeddedServer::many(count).into_iter().map(Arc::new).collect()
}

/// Settings of a manager on all servers: another process, as far as locking can tell.
pub(crate) fn on(servers: &Servers) -> Builder {
    servers.iter().fold(LockManager::builder(), |builder, server| {
        let server = server.clone();
        builder.server_streams(move || {
            let stream = server.connect();
            async move { Ok(stream) }
        })
    })
}

pub(crate) async fn manager(servers: &Servers) -> LockManager {
    on(servers).build().await.unwrap()
}

/// On how many servers the key stands.
pub(crate) fn stands(servers: &Servers, key: &str) -> usize {
    let name = format!("distlock:{key}");
    servers.iter().filter(|server| server.command(&["EXISTS", &name]).unwrap() == Reply::Int(1)).count()
}

/// Waits until the key stands on so many servers.
pub(crate) async fn comes_to_stand(servers: &Servers, key: &str, count: usize, limit: Duration) {
    let begun = Instant::now();
    while stands(servers, key) != count {
        assert!(begun.elapsed() <= limit, "`{key}` stands on {} servers, not on {count}", stands(servers, key));
        sleep(ms(1)).await;
    }
}

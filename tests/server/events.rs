//! What the library tells through `tracing`, and that it tells it.

use std::fmt::{self, Write as _};
use std::sync::{Mutex, PoisonError};

use distlock::LockManager;
use distlock_testkit::{Server, server_or_skip, servers_or_skip};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::support::{ask, exists, ms, until};

/// Every event of the process since the first test that listens, as text.
static EVENTS: Mutex<String> = Mutex::new(String::new());

/// Writes down what it is told.
struct Log(&'static Mutex<String>);

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "distlock"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        struct Text<'a>(&'a mut String);
        impl Visit for Text<'_> {
            fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
                write!(self.0, "{field}={value:?} ").unwrap();
            }
        }
        let mut events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        write!(events, "{} ", event.metadata().level()).unwrap();
        event.record(&mut Text(&mut events));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// What was told so far.
pub(crate) fn told() -> String {
    EVENTS.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Takes down every event of the process from now on.
pub(crate) fn listen() {
    let _ = tracing::subscriber::set_global_default(Log(&EVENTS));
}

#[tokio::test]
async fn what_is_wrong_with_a_server_is_told_when_it_is_connected_to() {
    listen();
    let server =
        server_or_skip!(Server::builder().setting("maxmemory", "77mb").setting("maxmemory-policy", "volatile-lfu"));
    LockManager::connect(server.url()).await.unwrap();
    assert!(told().contains("maxmemory-policy volatile-lfu"), "{}", told());
    // One that refuses to be asked is connected to all the same, and nothing is told of it.
    let poor = server_or_skip!();
    poor.command(&["ACL", "SETUSER", "poor", "on", ">p", "-@all"]).unwrap();
    LockManager::connect(format!("redis://poor:p@127.0.0.1:{}", poor.port())).await.unwrap();
}

#[tokio::test]
async fn a_release_that_is_refused_is_told_at_once() {
    listen();
    let server = server_or_skip!();
    let rule = ["ACL", "SETUSER", "app", "on", ">p", "~*", "&*", "+@all"];
    ask(&server, &rule);
    let locks = LockManager::connect(format!("redis://app:p@127.0.0.1:{}", server.port())).await.unwrap();
    let lease = locks.lock("refused-release").ttl(ms(60_000)).acquire().await.unwrap();
    ask(&server, &["ACL", "SETUSER", "app", "-evalsha", "-eval"]);
    drop(lease);
    until("it is told", ms(2000), || told().contains("release refused")).await;
    tokio::time::sleep(ms(600)).await;
    assert_eq!(told().matches("release refused").count(), 1, "once");
    ask(&server, &["ACL", "SETUSER", "app", "+evalsha", "+eval"]);
    until("it was tried on", ms(3000), || !exists(&server, "distlock:refused-release")).await;
}

#[tokio::test]
async fn a_sentinel_is_told_in_one_event() {
    listen();
    let sentinels = distlock_testkit::sentinels_or_skip!();
    let port = sentinels.sentinels()[0].port();
    LockManager::connect(format!("redis://127.0.0.1:{port}")).await.unwrap();
    let about = format!("node=\"127.0.0.1:{port}\"");
    assert_eq!(told().matches(&about).count(), 1, "{}", told());
}

#[tokio::test]
async fn one_of_several_servers_that_fails_is_told_once_also_to_who_only_holds_and_so_is_its_return() {
    listen();
    let mut servers = vec![server_or_skip!()];
    servers.extend(Server::spawn_many(2).unwrap());
    let locks = LockManager::builder().redlock(servers.iter().map(Server::url)).build().await.unwrap();
    let lease = locks.lock("k").ttl(ms(600)).acquire().await.unwrap();
    tokio::time::sleep(ms(400)).await;
    let about = |what: &str| {
        let server = format!("server=\"127.0.0.1:{}\"", servers[2].port());
        told().match_indices(&server).filter(|(at, _)| told()[at.saturating_sub(400)..].contains(what)).count()
    };
    let before = about("fails");
    servers[2].pause().unwrap();
    until("the failure is told", ms(3000), || about("fails") == before + 1).await;
    tokio::time::sleep(ms(1000)).await;
    assert_eq!(about("fails"), before + 1, "once");
    servers[2].resume().unwrap();
    until("the return is told", ms(3000), || about("answers again") > 0).await;
    lease.release().await.unwrap();
}

#[tokio::test]
async fn an_even_number_of_servers_is_warned_of_once_for_each_manager_and_an_odd_one_is_not() {
    // Other tests have managers on two servers as well, in threads of their own.
    static OWN: Mutex<String> = Mutex::new(String::new());
    let servers = servers_or_skip!(3);
    let _own = tracing::subscriber::set_default(Log(&OWN));
    for (count, expected) in [(3, 0), (2, 1), (2, 2)] {
        let locks = LockManager::builder().redlock(servers[..count].iter().map(Server::url)).build().await.unwrap();
        locks.lock("k").run(async |_| ()).await.unwrap();
        let told = OWN.lock().unwrap();
        assert_eq!(told.matches("WARN message=an even number of lock servers").count(), expected, "{told}");
        assert_eq!(told.matches(" servers=2 ").count(), expected, "{told}");
    }
}

//! What the library tells through `tracing`, and that it tells it.

use std::fmt::{self, Write as _};
use std::sync::{Mutex, PoisonError};

use distlock::LockManager;
use distlock_testkit::{Server, server_or_skip};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Every event of the process since the first test that listens, as text.
static EVENTS: Mutex<String> = Mutex::new(String::new());

struct Log;

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
        event.record(&mut Text(&mut EVENTS.lock().unwrap_or_else(PoisonError::into_inner)));
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
    let _ = tracing::subscriber::set_global_default(Log);
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

//! Being told of one's turn: a channel of the process's own, to which its front connection listens.
//!
//! A message only wakes the waiters for the key that it names; they ask the server, and its answer is what counts. So a
//! message that is lost, late, doubled or somebody else's costs a question and grants nothing.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use redis::{PushInfo, PushKind, Value};

use crate::events;
use crate::store::ears::Ears;

/// Whether a connection can be told anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Listening {
    /// It was not asked for yet.
    NotYet,
    Yes,
    /// The server or something before it does not allow it.
    Refused,
}

/// That of one connection, shared by those who use it.
#[derive(Debug, Default)]
pub(super) struct State(AtomicU8);

impl State {
    pub(super) fn get(&self) -> Listening {
        match self.0.load(Ordering::Acquire) {
            state if state == Listening::Yes as u8 => Listening::Yes,
            state if state == Listening::Refused as u8 => Listening::Refused,
            _ => Listening::NotYet,
        }
    }

    pub(super) fn set(&self, listening: Listening) {
        self.0.store(listening as u8, Ordering::Release);
    }
}

/// The name of a new channel. Nobody can guess it, so nobody can keep its waiters busy.
pub(super) fn channel() -> Arc<str> {
    format!("distlock:turn:{}", uuid::Uuid::new_v4().simple()).into()
}

/// What a connection does with what the server sends unasked. Runs on the connection's driver, so it only wakes.
pub(super) fn hear(ears: Arc<Ears>) -> impl Fn(PushInfo) -> Result<(), Infallible> + Send + Sync + 'static {
    let hearing = Hearing(ears);
    move |push| {
        let Hearing(ears) = &hearing;
        match push.kind {
            // Data: channel, message.
            PushKind::Message => {
                let key = push.data.get(1).and_then(|message| match message {
                    Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
                    Value::SimpleString(text) => Some(text.as_str()),
                    _ => None,
                });
                if !key.is_some_and(|key| ears.tell(key)) {
                    events::wake_up_for_nobody();
                }
            }
            // They are not told any more, so they must look for themselves.
            PushKind::Disconnection => ears.tell_all(),
            _ => {}
        }
        Ok(())
    }
}

/// Goes with the driver of a connection. A driver whose runtime ends sends no word of it.
struct Hearing(Arc<Ears>);

impl Drop for Hearing {
    fn drop(&mut self) {
        // They are not told any more, so they must look for themselves.
        self.0.tell_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{Keys, Namespace};

    #[tokio::test(start_paused = true)]
    async fn waiters_look_for_themselves_when_the_driver_of_their_connection_goes() {
        let ears = Arc::new(Ears::default());
        let names = Namespace::default().names(&Keys::one("k".to_owned())).unwrap();
        let ear = ears.listen(&names, ears.mark());
        drop(hear(ears));
        tokio::time::timeout(std::time::Duration::from_secs(1), ear.told()).await.unwrap();
    }
}

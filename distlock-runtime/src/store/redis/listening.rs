//! Being told of one's turn: a channel of the process's own, to which its front connection listens; in a Cluster a
//! sharded one for each node that is waited for, on a connection of its own.
//!
//! A message only wakes the waiters for the key that it names; they ask the server, and its answer is what counts. So a
//! message that is lost, late, doubled or somebody else's costs a question and grants nothing.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::{PushInfo, PushKind, Value};
#[cfg(feature = "cluster")]
use tokio::time::Instant;

use crate::events;
use crate::store::ears::Ears;

/// Whether a connection can be told anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listening {
    /// It was not asked for yet.
    NotYet,
    Yes,
    /// The server or something before it does not allow it.
    Refused,
}

/// That of one connection, shared by those who use it.
#[derive(Debug, Default)]
pub(super) struct State(Mutex<Where>);

#[derive(Debug, Default)]
enum Where {
    #[default]
    NotYet,
    On {
        channel: Arc<str>,
        /// When the server last said so.
        #[cfg(feature = "cluster")]
        since: Instant,
    },
    Refused,
}

impl State {
    pub(super) fn get(&self) -> Listening {
        match *self.lock() {
            Where::NotYet => Listening::NotYet,
            Where::On { .. } => Listening::Yes,
            Where::Refused => Listening::Refused,
        }
    }

    /// Where it listens.
    pub(super) fn channel(&self) -> Option<Arc<str>> {
        match &*self.lock() {
            Where::On { channel, .. } => Some(channel.clone()),
            Where::NotYet | Where::Refused => None,
        }
    }

    /// When the server last said that it listens.
    #[cfg(feature = "cluster")]
    pub(super) fn since(&self) -> Option<Instant> {
        match *self.lock() {
            Where::On { since, .. } => Some(since),
            Where::NotYet | Where::Refused => None,
        }
    }

    pub(super) fn begin(&self, channel: Arc<str>) {
        *self.lock() = Where::On {
            channel,
            #[cfg(feature = "cluster")]
            since: Instant::now(),
        };
    }

    /// The server has ended it: the slot of the channel has left the node.
    fn end(&self, channel: &str) {
        let mut told = self.lock();
        if matches!(&*told, Where::On { channel: own, .. } if **own == *channel) {
            *told = Where::NotYet;
        }
    }

    /// The connection is gone.
    fn lose(&self) {
        *self.lock() = Where::NotYet;
    }

    pub(super) fn refuse(&self) {
        *self.lock() = Where::Refused;
    }

    fn lock(&self) -> MutexGuard<'_, Where> {
        // Nothing that can panic runs under the lock, so a poisoned state is still whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The name of a new channel. Nobody can guess it, so nobody can keep its waiters busy.
pub(super) fn channel() -> Arc<str> {
    format!("distlock:turn:{}", uuid::Uuid::new_v4().simple()).into()
}

/// The same in a slot of a Cluster. The scripts tell a sharded channel by its brace.
#[cfg(feature = "cluster")]
pub(super) fn channel_in(slot: u16) -> Arc<str> {
    format!("distlock:turn:{{{}}}:{}", crate::slot::tag_of(slot), uuid::Uuid::new_v4().simple()).into()
}

/// What a connection does with what the server sends unasked. Runs on the connection's driver, so it only wakes.
pub(super) fn hear(
    ears: Arc<Ears>,
    state: Arc<State>,
) -> impl Fn(PushInfo) -> Result<(), Infallible> + Send + Sync + 'static {
    let hearing = Hearing(ears);
    move |push| {
        let Hearing(ears) = &hearing;
        match push.kind {
            // Data: channel, message.
            PushKind::Message | PushKind::SMessage => {
                let key = push.data.get(1).and_then(text);
                if !key.is_some_and(|key| ears.tell(key)) {
                    events::wake_up_for_nobody();
                }
            }
            // Data: channel, number of channels.
            PushKind::SSubscribe => {
                if let Some(channel) = push.data.first().and_then(text) {
                    state.begin(channel.into());
                }
            }
            PushKind::SUnsubscribe => {
                if let Some(channel) = push.data.first().and_then(text) {
                    state.end(channel);
                }
                // They are not told any more, so they must look for themselves.
                ears.tell_all();
            }
            PushKind::Disconnection => {
                state.lose();
                // They are not told any more, so they must look for themselves.
                ears.tell_all();
            }
            _ => {}
        }
        Ok(())
    }
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
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
        drop(hear(ears, Arc::default()));
        tokio::time::timeout(std::time::Duration::from_secs(1), ear.told()).await.unwrap();
    }
}

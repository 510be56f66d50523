//! Hearing that the Sentinels name another primary than the one a connection leads to.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ErrorKind, ProtocolVersion, PushInfo, PushKind, RedisError};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::{ASK_AGAIN, Address, Sentinels, text};
use crate::store::redis::target::{Failure, Server};

/// How often at the least. Each question is a connection to each Sentinel, from each process.
const ASK_SELDOM: Duration = Duration::from_millis(500);

/// Where a Sentinel publishes that it takes another server for the primary. The one that leads a failover says the first
/// when it is over, and names the new one from the second on.
const SWITCHES: [&str; 2] = ["+switch-master", "+promoted-slave"];

/// For how long after such a word the others are asked whether they agree.
const AGREE_WITHIN: Duration = Duration::from_secs(10);

/// How often it is looked whether the Sentinel that is listened to still answers.
const PING: Duration = Duration::from_secs(5);

/// The pause before another Sentinel is listened to.
const NEXT_SENTINEL: Duration = Duration::from_secs(1);

impl Sentinels {
    /// Completes when the Sentinels name another address than this one.
    pub(super) async fn another_than(&self, address: &Address) {
        let mut pause = ASK_AGAIN;
        loop {
            sleep(pause.mul_f64(0.5 + fastrand::f64())).await;
            if self.name_another_than(address).await {
                return;
            }
            pause = (pause * 2).min(ASK_SELDOM);
        }
    }

    /// Most of the Sentinels name another one, or all that answer do.
    async fn name_another_than(&self, address: &Address) -> bool {
        self.ask().await.is_ok_and(|named| !named.contains(address))
    }

    /// Closes the connection when the Sentinels name another primary than the one it leads to.
    pub(super) async fn watch(self: Arc<Self>, mut connection: MultiplexedConnection, address: Address) {
        let mut next = fastrand::usize(..self.sentinels.len());
        while self.listen(self.sentinels[next].clone(), &address).await.is_err() {
            next = (next + 1) % self.sentinels.len();
            sleep(NEXT_SENTINEL.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
        }
        // The server closes the connection behind the last answer that it owes: those who wait are told, and ask anew.
        let _ = connection.send_packed_command(&redis::cmd("QUIT")).await;
    }

    /// Listens to one Sentinel until another address is named than this one; fails when it does not answer.
    async fn listen(&self, sentinel: Server, address: &Address) -> Result<(), Failure> {
        let Server { info, access } = sentinel;
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let sentinel = Server { info: info.set_redis_settings(settings), access };
        let (told, gone) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (tell, end, own) = (told.clone(), gone.clone(), self.name.clone());
        let limit = Some(self.limit);
        let config = AsyncConnectionConfig::new().set_response_timeout(limit).set_connection_timeout(limit);
        let config = config.set_push_sender(move |push: PushInfo| {
            match push.kind {
                // They publish for all primaries that they know.
                PushKind::Message
                    if push.data.get(1).and_then(text).is_some_and(|it| it.split(' ').any(|it| it == own)) =>
                {
                    tell.notify_one();
                }
                PushKind::Disconnection => end.notify_one(),
                _ => {}
            }
            Ok::<_, Infallible>(())
        });
        let mut connection = sentinel.connect(&config).await?;
        connection.subscribe(&SWITCHES[..]).await?;
        // It may have been so already.
        if self.name_another_than(address).await {
            return Ok(());
        }
        loop {
            tokio::select! {
                biased;
                () = gone.notified() => return Err(RedisError::from((ErrorKind::Io, "the Sentinel has gone")).into()),
                () = told.notified() => {
                    // The one that told may be the first to know.
                    if timeout(AGREE_WITHIN, self.another_than(address)).await.is_ok() {
                        return Ok(());
                    }
                }
                () = sleep(PING) => drop(connection.send_packed_command(&redis::cmd("PING")).await?),
            }
        }
    }
}

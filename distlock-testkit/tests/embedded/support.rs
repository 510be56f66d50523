//! Connecting the client crate to an embedded server, and the runtime's scripts.

use std::time::Duration;

use distlock_testkit::EmbeddedServer;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ProtocolVersion, RedisResult, Value};

pub(crate) const ACQUIRE: &str = concat!(
    include_str!("../../../distlock-runtime/src/store/redis/lua/queue.lua"),
    include_str!("../../../distlock-runtime/src/store/redis/lua/acquire.lua")
);
pub(crate) const RENEW: &str = include_str!("../../../distlock-runtime/src/store/redis/lua/renew.lua");
pub(crate) const RELEASE: &str = concat!(
    include_str!("../../../distlock-runtime/src/store/redis/lua/queue.lua"),
    include_str!("../../../distlock-runtime/src/store/redis/lua/release.lua")
);

pub(crate) const A: &str = "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa";
pub(crate) const B: &str = "bbbbbbbb-bbbb-4bbb-8bbb-bbbbbbbbbbbb";

pub(crate) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A client over memory that waits for ever.
pub(crate) async fn client(server: &EmbeddedServer) -> MultiplexedConnection {
    try_client(server, ProtocolVersion::RESP3).await.unwrap()
}

pub(crate) async fn try_client(
    server: &EmbeddedServer,
    protocol: ProtocolVersion,
) -> RedisResult<MultiplexedConnection> {
    let info: redis::ConnectionInfo = "redis://embedded".parse()?;
    let info = redis::IntoConnectionInfo::into_connection_info(info)?;
    let settings = info.redis_settings().clone().set_protocol(protocol);
    let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    let (connection, driver) = MultiplexedConnection::new_with_config(&settings, server.connect(), config).await?;
    tokio::spawn(driver);
    Ok(connection)
}

/// Sends a command and gives what came back, as text.
pub(crate) async fn ask(client: &mut MultiplexedConnection, parts: &[&str]) -> RedisResult<Value> {
    let mut command = redis::cmd(parts[0]);
    command.arg(&parts[1..]);
    command.query_async(client).await
}

pub(crate) async fn acquire(client: &mut MultiplexedConnection, token: &str) -> RedisResult<Value> {
    let gone = format!("{{k}}:gone:{token}");
    let keys = ["k", "{k}:queue", "{k}:waiters", &gone, "{k}:fence"];
    ask(client, &[&["EVAL", ACQUIRE, "5"], &keys[..], &[token, "10000", "host/1 f", "1"]].concat()).await
}

/// The first word of the acquire script's answer.
pub(crate) fn word(answer: RedisResult<Value>) -> String {
    let parts = match answer.unwrap() {
        Value::Int(_fencing_token) => return "granted".to_owned(),
        Value::Array(parts) => parts,
        other => panic!("{other:?}"),
    };
    let Value::BulkString(word) = &parts[0] else { panic!("{parts:?}") };
    String::from_utf8_lossy(word).into_owned()
}

//! What a client of either protocol gets, over memory and over TCP.

use distlock_testkit::{Connection, EmbeddedServer, Error, Reply};
use redis::{ProtocolVersion, Value};
use tokio::time::Instant;

use crate::support::{A, ACQUIRE, B, RELEASE, RENEW, acquire, ask, client, millis, try_client, word};

#[tokio::test(start_paused = true)]
async fn a_lock_is_taken_renewed_and_released_in_virtual_time() {
    let server = EmbeddedServer::new();
    let mut client = client(&server).await;
    let begun = Instant::now();
    assert_eq!(word(acquire(&mut client, A).await), "granted");
    assert_eq!(word(acquire(&mut client, B).await), "held");
    tokio::time::sleep(millis(9_000)).await;
    let renewed = ask(&mut client, &["EVAL", RENEW, "1", "k", A, "10000"]).await.unwrap();
    assert_eq!(renewed, Value::Array(vec![Value::Int(1)]));
    tokio::time::sleep(millis(9_000)).await;
    assert_eq!(word(acquire(&mut client, B).await), "held");
    let released =
        ask(&mut client, &["EVAL", RELEASE, "4", "k", "queue", "waiters", "gone", A, "0", "1000"]).await.unwrap();
    assert_eq!(released, Value::Array(vec![Value::Int(1)]));
    assert_eq!(word(acquire(&mut client, B).await), "granted");
    tokio::time::sleep(millis(10_001)).await;
    assert_eq!(word(acquire(&mut client, A).await), "granted", "expired");
    assert_eq!(begun.elapsed(), millis(28_001));
}

#[tokio::test]
async fn other_processes_reach_it_over_tcp() {
    let server = EmbeddedServer::new();
    let address = server.serve_tcp().await.unwrap();
    assert!(address.ip().is_loopback());
    let redis = redis::Client::open(format!("redis://{address}/0?protocol=resp3")).unwrap();
    let mut client = redis.get_multiplexed_async_connection().await.unwrap();
    assert_eq!(word(acquire(&mut client, A).await), "granted");
    // The kit's own client blocks, and so would the server on the same thread.
    let (port, gone) = (address.port(), format!("{{k}}:gone:{B}"));
    let reply = tokio::task::spawn_blocking(move || {
        let mut connection = Connection::open(port, None).unwrap();
        connection
            .command(&[
                "EVAL",
                ACQUIRE,
                "5",
                "k",
                "{k}:queue",
                "{k}:waiters",
                &gone,
                "{k}:fence",
                B,
                "10000",
                "host/1 f",
                "1",
            ])
            .unwrap()
    });
    assert_eq!(reply.await.unwrap().as_list().unwrap()[0], Reply::Text("held".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn both_protocols_are_spoken() {
    let server = EmbeddedServer::new();
    server.command(&["HSET", "h", "f", "v"]).unwrap();
    let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
    let mut three = try_client(&server, ProtocolVersion::RESP3).await.unwrap();
    assert_eq!(ask(&mut three, &["HGETALL", "h"]).await.unwrap(), Value::Map(vec![(text("f"), text("v"))]));
    let mut two = try_client(&server, ProtocolVersion::RESP2).await.unwrap();
    assert_eq!(ask(&mut two, &["HGETALL", "h"]).await.unwrap(), Value::Array(vec![text("f"), text("v")]));
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_is_sent_what_others_publish() {
    let server = EmbeddedServer::new();
    let (sender, mut pushes) = tokio::sync::mpsc::unbounded_channel();
    let config = redis::AsyncConnectionConfig::new().set_push_sender(sender);
    let settings = redis::RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3);
    let (mut subscriber, driver) =
        redis::aio::MultiplexedConnection::new_with_config(&settings, server.connect(), config).await.unwrap();
    tokio::spawn(driver);
    subscriber.subscribe("c").await.unwrap();
    let confirmed = pushes.recv().await.unwrap();
    assert_eq!(confirmed.kind, redis::PushKind::Subscribe);

    let mut other = client(&server).await;
    assert_eq!(ask(&mut other, &["PUBLISH", "c", "hello"]).await.unwrap(), Value::Int(1));
    let script = "return redis.call('PUBLISH', KEYS[1], 'again')";
    assert_eq!(ask(&mut other, &["EVAL", script, "1", "c"]).await.unwrap(), Value::Int(1));
    for message in ["hello", "again"] {
        let push = pushes.recv().await.unwrap();
        assert_eq!(push.kind, redis::PushKind::Message);
        assert_eq!(push.data[1], Value::BulkString(message.as_bytes().to_vec()));
    }
    // The same connection still answers.
    assert_eq!(ask(&mut subscriber, &["PING"]).await.unwrap(), Value::SimpleString("PONG".to_owned()));
    drop((subscriber, pushes));
    tokio::task::yield_now().await;
    tokio::time::sleep(millis(1)).await;
    assert_eq!(ask(&mut other, &["PUBLISH", "c", "nobody"]).await.unwrap(), Value::Int(0));
}

#[tokio::test(start_paused = true)]
async fn a_password_is_asked_for() {
    let server = EmbeddedServer::builder().password("secret1").start();
    let refused = try_client(&server, ProtocolVersion::RESP3).await.unwrap_err();
    assert_eq!(refused.code(), Some("NOAUTH"), "{refused}");
    let settings = redis::RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3).set_password("secret1");
    let config = redis::AsyncConnectionConfig::new();
    let (mut connection, driver) =
        redis::aio::MultiplexedConnection::new_with_config(&settings, server.connect(), config).await.unwrap();
    tokio::spawn(driver);
    assert_eq!(ask(&mut connection, &["SET", "k", "v"]).await.unwrap(), Value::Okay);
}

#[test]
fn direct_access_needs_no_runtime_and_answers_as_a_real_server_does() {
    let server = EmbeddedServer::new();
    assert_eq!(server.command(&["SET", "k", "a b"]).unwrap(), Reply::Text("OK".to_owned()));
    assert!(server.command(&["GET", "other"]).unwrap().is_nil());
    let error = server.command(&["NOPE", "x"]).unwrap_err();
    assert!(
        matches!(&error, Error::Refused(text) if text == "ERR unknown command 'NOPE', with args beginning with: 'x' "),
        "{error}"
    );
}

#[test]
fn many_servers_know_nothing_of_each_other() {
    let servers = EmbeddedServer::many(3);
    servers[0].command(&["SET", "k", "v"]).unwrap();
    assert!(servers[1].command(&["GET", "k"]).unwrap().is_nil());
    let id = |server: &EmbeddedServer| {
        let info = server.command(&["INFO"]).unwrap();
        info.as_text().unwrap().lines().find(|line| line.starts_with("run_id:")).unwrap().to_owned()
    };
    assert_ne!(id(&servers[0]), id(&servers[1]));
    let before = id(&servers[0]);
    servers[0].restart(true);
    assert_ne!(id(&servers[0]), before);
}

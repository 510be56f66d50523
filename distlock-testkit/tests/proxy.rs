//! The proxy in front of an embedded server and of a real one: it is not noticed, and each fault does what it says.

use std::time::Duration;

use distlock_testkit::{EmbeddedServer, Fault, FaultProxy, Match, Refusal, Reply, Server, server_or_skip};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisResult, Value};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, timeout};

/// So long nothing comes, if nothing is to come.
const SILENCE: Duration = Duration::from_millis(60);

const DELAY: Duration = Duration::from_millis(60);

/// A server of either kind, to be looked at without the proxy.
trait Behind {
    fn ask(&self, parts: &[&str]) -> Reply;
}

impl Behind for EmbeddedServer {
    fn ask(&self, parts: &[&str]) -> Reply {
        self.command(parts).unwrap()
    }
}

impl Behind for Server {
    fn ask(&self, parts: &[&str]) -> Reply {
        self.command(parts).unwrap()
    }
}

async fn client(proxy: &FaultProxy) -> MultiplexedConnection {
    let client = redis::Client::open(format!("{}?protocol=resp3", proxy.url())).unwrap();
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    client.get_multiplexed_async_connection_with_config(&config).await.unwrap()
}

async fn ask(client: &mut MultiplexedConnection, parts: &[&str]) -> RedisResult<Value> {
    redis::cmd(parts[0]).arg(&parts[1..]).query_async(client).await
}

/// Sends a `SET` of this key, through a connection of its own, with this fault on it.
async fn strike(proxy: &FaultProxy, key: &str, fault: Fault) -> (MultiplexedConnection, Option<RedisResult<Value>>) {
    let mut client = client(proxy).await;
    proxy.inject(Match::nth(1).command("SET").key(key), fault);
    ask(&mut client, &["GET", key]).await.unwrap();
    let answer = timeout(SILENCE, ask(&mut client, &["SET", key, "v"])).await;
    (client, answer.ok())
}

fn ok(answer: Option<RedisResult<Value>>) -> bool {
    matches!(answer, Some(Ok(Value::Okay)))
}

fn dropped(answer: Option<RedisResult<Value>>) -> bool {
    matches!(answer, Some(Err(error)) if error.is_connection_dropped())
}

/// Looks until it is so; what is waited for takes milliseconds.
async fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(10);
    while !is_so() {
        assert!(Instant::now() < until, "{what}: not within 10 s");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// All that a proxy does, in front of this server.
async fn every_fault_does_what_it_says(port: u16, server: &impl Behind) {
    let proxy = FaultProxy::start(port).await.unwrap();
    let stored = |key: &str| server.ask(&["GET", key]).as_text().map(str::to_owned);
    let v = || Some("v".to_owned());

    let (mut live, answer) = strike(&proxy, "late-command", Fault::DelayCommand(2 * DELAY)).await;
    assert!(answer.is_none() && stored("late-command").is_none());
    ask(&mut live, &["PING"]).await.unwrap();
    assert_eq!(stored("late-command"), v());

    let (mut live, answer) = strike(&proxy, "late-reply", Fault::DelayReply(2 * DELAY)).await;
    assert!(answer.is_none());
    assert_eq!(stored("late-reply"), v());
    ask(&mut live, &["PING"]).await.unwrap();

    let (mut silent, answer) = strike(&proxy, "dropped", Fault::DropReply).await;
    assert!(answer.is_none());
    assert_eq!(stored("dropped"), v());
    assert!(timeout(SILENCE, ask(&mut silent, &["SET", "dropped", "2"])).await.is_err());
    assert_eq!(stored("dropped").as_deref(), Some("2"), "it goes on to execute");

    let (mut unheard, answer) = strike(&proxy, "hole", Fault::BlackHole).await;
    assert!(answer.is_none());
    assert!(timeout(SILENCE, ask(&mut unheard, &["SET", "hole", "2"])).await.is_err());
    assert_eq!(stored("hole"), None);

    let (_, answer) = strike(&proxy, "before", Fault::CutBefore).await;
    assert!(dropped(answer) && stored("before").is_none());
    let (_, answer) = strike(&proxy, "reset", Fault::Reset).await;
    assert!(dropped(answer) && stored("reset").is_none());
    let (_, answer) = strike(&proxy, "after", Fault::CutAfter).await;
    assert!(dropped(answer));
    assert_eq!(stored("after"), v());

    let (mut live, answer) = strike(&proxy, "refused", Fault::Refuse(Refusal::ClusterDown)).await;
    assert_eq!(answer.unwrap().unwrap_err().code(), Some("CLUSTERDOWN"));
    assert_eq!(stored("refused"), None);
    assert!(ok(Some(ask(&mut live, &["SET", "refused", "v"]).await)));

    let mut live = client(&proxy).await;
    proxy.inject(Match::nth(1).command("INCR"), Fault::Duplicate(Duration::ZERO));
    assert_eq!(ask(&mut live, &["INCR", "n"]).await.unwrap(), Value::Int(1));
    assert_eq!(ask(&mut live, &["INCR", "n"]).await.unwrap(), Value::Int(3));
    proxy.inject(Match::nth(1).command("INCR"), Fault::Duplicate(DELAY));
    assert_eq!(ask(&mut live, &["INCR", "n"]).await.unwrap(), Value::Int(4));
    drop(live); // the copy comes from a connection that has gone
    eventually("the copy is executed", || stored("n").as_deref() == Some("5")).await;

    answers_keep_step(&proxy).await;
    everything_else_passes(&proxy, server).await;
}

/// Byte for byte: a client that counts answers would take an answer too many, or the next one, for its own.
async fn answers_keep_step(proxy: &FaultProxy) {
    proxy.clear();
    let mut wire = Wire::open(proxy).await;
    proxy.inject(Match::nth(1).command("INCR").key("copied"), Fault::Duplicate(Duration::ZERO));
    wire.send("INCR copied\r\nECHO a\r\n").await;
    wire.expect(":1\r\n$1\r\na\r\n").await;

    // Confirmations of subscriptions are answers, in both protocols; messages are none.
    for protocol in ["2", "3"] {
        let mut wire = Wire::open(proxy).await;
        if protocol == "3" {
            wire.send("HELLO 3\r\n").await;
            wire.skip_to("modules\r\n*0\r\n").await;
        }
        wire.send("SUBSCRIBE a b\r\nSSUBSCRIBE a\r\nUNSUBSCRIBE\r\nSUNSUBSCRIBE a\r\nUNSUBSCRIBE\r\n").await;
        wire.skip_to("sunsubscribe\r\n$1\r\na\r\n:0\r\n").await;
        wire.skip_to(":0\r\n").await;
        proxy.inject(Match::nth(1).command("ECHO"), Fault::Refuse(Refusal::Loading));
        wire.send("ECHO x\r\nECHO y\r\n").await;
        wire.expect("-LOADING Redis is loading the dataset in memory\r\n$1\r\ny\r\n").await;
    }

    let mut wire = Wire::open(proxy).await;
    proxy.inject(Match::nth(2).command("ECHO"), Fault::DropReply);
    wire.send("ECHO a\r\nECHO b\r\nECHO c\r\nECHO d\r\n").await;
    wire.expect("$1\r\na\r\n").await;
    assert!(timeout(SILENCE, wire.stream.read_u8()).await.is_err());
}

struct Wire {
    stream: tokio::net::TcpStream,
}

impl Wire {
    async fn open(proxy: &FaultProxy) -> Self {
        Self { stream: tokio::net::TcpStream::connect(("127.0.0.1", proxy.port())).await.unwrap() }
    }

    async fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }

    #[track_caller]
    fn expect(&mut self, text: &str) -> impl Future<Output = ()> {
        let (place, text) = (std::panic::Location::caller(), text.to_owned());
        async move {
            let mut seen = vec![0; text.len()];
            let read = timeout(Duration::from_secs(5), self.stream.read_exact(&mut seen)).await;
            let seen = String::from_utf8_lossy(&seen).into_owned();
            assert!(read.is_ok() && seen == text, "{place}: {seen:?} instead of {text:?}");
        }
    }

    /// Reads until just behind this text.
    #[track_caller]
    fn skip_to(&mut self, text: &str) -> impl Future<Output = ()> {
        let (place, text) = (std::panic::Location::caller(), text.to_owned());
        async move {
            let mut seen = Vec::new();
            while !seen.ends_with(text.as_bytes()) {
                match timeout(Duration::from_secs(5), self.stream.read_u8()).await {
                    Ok(Ok(byte)) => seen.push(byte),
                    other => panic!("{place}: {other:?} after {:?}", String::from_utf8_lossy(&seen)),
                }
            }
        }
    }
}

/// Pipelines, pushes and large values arrive as they were sent; without the server, connections are closed.
async fn everything_else_passes(proxy: &FaultProxy, server: &impl Behind) {
    let mut live = client(proxy).await;
    let large = "x".repeat(300_000);
    let mut pipe = redis::pipe();
    for number in 0..40 {
        pipe.cmd("SET").arg(format!("p{number}")).arg(&large).ignore();
    }
    pipe.cmd("GET").arg("p39");
    let (read,): (String,) = pipe.query_async(&mut live).await.unwrap();
    assert!(read == large);

    let (sender, mut pushes) = tokio::sync::mpsc::unbounded_channel();
    let redis = redis::Client::open(format!("{}?protocol=resp3", proxy.url())).unwrap();
    let config = AsyncConnectionConfig::new().set_push_sender(sender);
    let mut subscriber = redis.get_multiplexed_async_connection_with_config(&config).await.unwrap();
    subscriber.subscribe(&["a", "b"]).await.unwrap();
    assert_eq!(server.ask(&["PUBLISH", "a", "hello"]), Reply::Int(1));
    while pushes.recv().await.unwrap().kind != redis::PushKind::Message {}
    assert_eq!(ask(&mut subscriber, &["ECHO", "x"]).await.unwrap(), Value::BulkString(b"x".to_vec()));
    subscriber.unsubscribe(&["a", "b"]).await.unwrap();
    assert_eq!(ask(&mut subscriber, &["ECHO", "y"]).await.unwrap(), Value::BulkString(b"y".to_vec()));

    let redis = redis::Client::open(format!("{}?protocol=resp2", proxy.url())).unwrap();
    let mut two = redis.get_async_pubsub().await.unwrap();
    two.subscribe("c").await.unwrap();
    assert_eq!(server.ask(&["PUBLISH", "c", "hello"]), Reply::Int(1));
    let message = std::future::poll_fn(|context| {
        futures_core::Stream::poll_next(std::pin::pin!(two.on_message()).as_mut(), context)
    });
    assert_eq!(message.await.unwrap().get_payload_bytes(), b"hello");

    proxy.cut();
    assert!(dropped(Some(ask(&mut live, &["PING"]).await)));
    client(proxy).await;
}

#[tokio::test]
async fn in_front_of_an_embedded_server() {
    let server = EmbeddedServer::new();
    let address = server.serve_tcp().await.unwrap();
    every_fault_does_what_it_says(address.port(), &server).await;
}

#[tokio::test]
async fn in_front_of_a_real_server() {
    let server = server_or_skip!();
    every_fault_does_what_it_says(server.port(), &server).await;
}

#[tokio::test]
async fn a_frozen_server_executes_what_came_through_from_a_client_that_has_gone() {
    let server = EmbeddedServer::new();
    let proxy = FaultProxy::start(server.serve_tcp().await.unwrap().port()).await.unwrap();
    let mut live = client(&proxy).await;
    server.freeze();
    assert!(timeout(SILENCE, ask(&mut live, &["SET", "k", "v"])).await.is_err());
    drop(live);
    server.thaw();
    eventually("the command is executed", || server.ask(&["GET", "k"]) == Reply::Text("v".to_owned())).await;
    eventually("the connection ends", || server.connections() == 0).await;
}

#[tokio::test]
async fn it_ends_with_its_handle_and_closes_where_no_server_is() {
    let server = EmbeddedServer::new();
    let proxy = FaultProxy::start(server.serve_tcp().await.unwrap().port()).await.unwrap();
    let mut live = client(&proxy).await;
    drop(proxy);
    assert!(dropped(Some(ask(&mut live, &["PING"]).await)));

    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = listener.local_addr().unwrap().port();
    drop(listener);
    let proxy = FaultProxy::start(nobody).await.unwrap();
    let redis = redis::Client::open(format!("redis://127.0.0.1:{}", proxy.port())).unwrap();
    let error = redis.get_multiplexed_async_connection().await.unwrap_err();
    assert!(error.is_connection_dropped(), "{error}");
}

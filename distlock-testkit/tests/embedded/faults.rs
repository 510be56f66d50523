//! Each fault does what it says, to the command it is meant for, in virtual time.

use distlock_testkit::{EmbeddedServer, Fault, Match, Refusal};
use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::time::{Instant, timeout};

use crate::support::{A, ACQUIRE, acquire, ask, client, millis, word};

/// Sends a command in a task of its own, and lets it reach the server.
async fn send(client: &MultiplexedConnection, parts: &'static [&'static str]) -> tokio::task::JoinHandle<()> {
    let mut client = client.clone();
    let sent = tokio::spawn(async move { drop(ask(&mut client, parts).await) });
    tokio::time::sleep(millis(1)).await;
    sent
}

fn stored(server: &EmbeddedServer) -> Option<String> {
    server.command(&["GET", "k"]).unwrap().as_text().map(str::to_owned)
}

#[tokio::test(start_paused = true)]
async fn a_delayed_command_is_executed_later_and_all_behind_it_too() {
    let server = EmbeddedServer::new();
    let mut client = client(&server).await;
    server.inject(Match::nth(1).command("SET"), Fault::DelayCommand(millis(500)));
    let begun = Instant::now();
    let set = send(&client, &["SET", "k", "v"]).await;
    assert_eq!(stored(&server), None);
    assert_eq!(ask(&mut client, &["GET", "k"]).await.unwrap(), Value::BulkString(b"v".to_vec()));
    assert_eq!(begun.elapsed(), millis(500));
    set.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_delayed_command_of_a_client_that_has_gone_is_executed_all_the_same() {
    let server = EmbeddedServer::new();
    let client = client(&server).await;
    server.inject(Match::nth(1).command("SET"), Fault::DelayCommand(millis(500)));
    send(&client, &["SET", "k", "v"]).await.abort();
    drop(client);
    tokio::time::sleep(millis(498)).await;
    assert_eq!(stored(&server), None);
    tokio::time::sleep(millis(2)).await;
    assert_eq!(stored(&server).as_deref(), Some("v"));
    assert_eq!(server.connections(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_delayed_answer_comes_late_to_a_command_that_was_executed_at_once() {
    let server = EmbeddedServer::new();
    let mut client = client(&server).await;
    server.inject(Match::nth(1).command("SET"), Fault::DelayReply(millis(500)));
    let begun = Instant::now();
    let set = send(&client, &["SET", "k", "v"]).await;
    assert_eq!(stored(&server).as_deref(), Some("v"));
    set.await.unwrap();
    assert_eq!(begun.elapsed(), millis(500));
    ask(&mut client, &["PING"]).await.unwrap();
    assert_eq!(begun.elapsed(), millis(500));
}

#[tokio::test(start_paused = true)]
async fn after_a_dropped_answer_the_connection_executes_and_answers_no_more() {
    let server = EmbeddedServer::new();
    let mut client = client(&server).await;
    let fault = server.inject(Match::nth(1).command("SET"), Fault::DropReply);
    assert!(timeout(millis(60_000), ask(&mut client, &["SET", "k", "1"])).await.is_err());
    assert_eq!(stored(&server).as_deref(), Some("1"));
    assert!(timeout(millis(60_000), ask(&mut client, &["SET", "k", "2"])).await.is_err());
    assert_eq!(stored(&server).as_deref(), Some("2"));
    assert_eq!((fault.hits(), server.connections()), (1, 1));
    let mut second = crate::support::client(&server).await;
    ask(&mut second, &["SET", "k", "3"]).await.unwrap();
}

/// A client that counts answers would take the next one for the one that is missing.
#[tokio::test(start_paused = true)]
async fn after_a_dropped_answer_no_byte_comes() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let server = EmbeddedServer::new();
    let mut stream = server.connect();
    server.inject(Match::nth(2).command("INCR"), Fault::DropReply);
    stream.write_all(b"INCR k\r\nINCR k\r\nINCR k\r\nINCR k\r\n").await.unwrap();
    let mut seen = Vec::new();
    assert!(timeout(millis(60_000), stream.read_to_end(&mut seen)).await.is_err(), "it stays open");
    assert_eq!((seen.as_slice(), stored(&server).as_deref()), (&b":1\r\n"[..], Some("4")));
}

#[tokio::test(start_paused = true)]
async fn a_black_hole_swallows_and_stays_open() {
    let server = EmbeddedServer::new();
    let mut client = client(&server).await;
    server.inject(Match::nth(1).command("SET"), Fault::BlackHole);
    for value in ["1", "2"] {
        assert!(timeout(millis(60_000), ask(&mut client, &["SET", "k", value])).await.is_err());
    }
    assert_eq!((stored(&server), server.connections()), (None, 1));
}

#[tokio::test(start_paused = true)]
async fn a_cut_comes_before_or_after_the_execution() {
    for (fault, expected) in [(Fault::CutBefore, None), (Fault::Reset, None), (Fault::CutAfter, Some("v"))] {
        let server = EmbeddedServer::new();
        let mut client = client(&server).await;
        server.inject(Match::nth(1).command("SET"), fault.clone());
        let error = ask(&mut client, &["SET", "k", "v"]).await.unwrap_err();
        assert!(error.is_connection_dropped(), "{fault:?}: {error}");
        assert_eq!(stored(&server).as_deref(), expected, "{fault:?}");
    }
}

#[tokio::test]
async fn a_reset_is_one_over_tcp() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let server = EmbeddedServer::new();
    let address = server.serve_tcp().await.unwrap();
    server.inject(Match::every().command("PING"), Fault::Reset);
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream.write_all(b"PING\r\n").await.unwrap();
    let error = stream.read(&mut [0]).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[tokio::test(start_paused = true)]
async fn a_refused_command_is_not_executed_and_the_next_one_is() {
    let refusals = [
        (Refusal::Busy, "BUSY"),
        (Refusal::Loading, "LOADING"),
        (Refusal::ReadOnly, "READONLY"),
        (Refusal::Oom, "OOM"),
        (Refusal::NoPerm, "NOPERM"),
        (Refusal::NoScript, "NOSCRIPT"),
        (Refusal::ClusterDown, "CLUSTERDOWN"),
        (Refusal::MisConf, "MISCONF"),
        (Refusal::TryAgain, "TRYAGAIN"),
        (Refusal::MasterDown, "MASTERDOWN"),
        (Refusal::Other("ODD this one".to_owned()), "ODD"),
    ];
    for (refusal, code) in refusals {
        let server = EmbeddedServer::new();
        let mut client = client(&server).await;
        server.inject(Match::nth(1).command("EVAL").script(ACQUIRE).key("k"), Fault::Refuse(refusal));
        assert_eq!(acquire(&mut client, A).await.unwrap_err().code(), Some(code));
        assert_eq!(stored(&server), None);
        assert_eq!(word(acquire(&mut client, A).await), "granted");
    }
}

#[tokio::test(start_paused = true)]
async fn a_copy_is_executed_later_and_answers_nobody() {
    let server = EmbeddedServer::new();
    let mut client = client(&server).await;
    server.inject(Match::nth(1).command("INCR"), Fault::Duplicate(millis(100)));
    assert_eq!(ask(&mut client, &["INCR", "k"]).await.unwrap(), Value::Int(1));
    tokio::time::sleep(millis(99)).await;
    assert_eq!(stored(&server).as_deref(), Some("1"));
    tokio::time::sleep(millis(2)).await;
    assert_eq!(stored(&server).as_deref(), Some("2"));
    server.inject(Match::nth(1).command("INCR"), Fault::Duplicate(millis(0)));
    assert_eq!(ask(&mut client, &["INCR", "k"]).await.unwrap(), Value::Int(3));
    assert_eq!(ask(&mut client, &["INCR", "k"]).await.unwrap(), Value::Int(5));
}

#[tokio::test(start_paused = true)]
async fn a_test_waits_for_a_fault_to_strike_and_takes_it_back() {
    let server = EmbeddedServer::new();
    let mut client = client(&server).await;
    let fault = server.inject(Match::every().command("PING"), Fault::Refuse(Refusal::Loading));
    let pinging = client.clone();
    let ping = send(&pinging, &["PING"]);
    tokio::join!(fault.struck(), async { drop(ping.await) });
    assert_eq!(fault.hits(), 1);
    fault.remove();
    ask(&mut client, &["PING"]).await.unwrap();
    server.inject(Match::every(), Fault::BlackHole);
    server.clear();
    ask(&mut client, &["PING"]).await.unwrap();
}

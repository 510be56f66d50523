//! What happens to servers: freezing, restarting, a clock that is bent. And the same story twice.

use distlock_testkit::{EmbeddedServer, Fault, Match};
use redis::Value;
use tokio::time::timeout;

use crate::support::{A, B, acquire, ask, client, millis, word};

#[tokio::test(start_paused = true)]
async fn a_frozen_server_keeps_what_it_is_sent_and_executes_it_in_order_of_arrival() {
    let server = EmbeddedServer::new();
    let (mut one, mut two) = (client(&server).await, client(&server).await);
    server.freeze();
    assert!(timeout(millis(1_000), ask(&mut one, &["RPUSH", "order", "a"])).await.is_err());
    assert!(timeout(millis(1_000), ask(&mut two, &["RPUSH", "order", "b"])).await.is_err());
    assert!(timeout(millis(1_000), ask(&mut one, &["RPUSH", "order", "c"])).await.is_err());
    drop((one, two)); // gone before the server has executed anything
    let late = timeout(millis(1_000), client(&server)).await;
    assert!(late.is_err(), "it accepts connections and does not greet");
    assert_eq!(server.command(&["EXISTS", "order"]).unwrap().as_int(), Some(0));
    server.thaw();
    let order = server.command(&["LRANGE", "order", "0", "-1"]).unwrap();
    let order: Vec<_> = order.as_list().unwrap().iter().map(|element| element.as_text().unwrap()).collect();
    assert_eq!(order, ["a", "b", "c"]);
    tokio::time::sleep(millis(1)).await;
    assert_eq!(server.connections(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_time_goes_on_while_a_server_is_frozen() {
    let server = EmbeddedServer::new();
    let mut client = client(&server).await;
    assert_eq!(word(acquire(&mut client, A).await), "granted");
    server.freeze();
    tokio::time::sleep(millis(10_001)).await;
    server.thaw();
    assert_eq!(word(acquire(&mut client, B).await), "granted");
}

#[tokio::test(start_paused = true)]
async fn a_restart_cuts_connections_forgets_scripts_and_keeps_the_keys_or_not() {
    let server = EmbeddedServer::new();
    for with_data in [true, false] {
        let mut before = client(&server).await;
        ask(&mut before, &["SET", "k", "v"]).await.unwrap();
        let Value::BulkString(sha) = ask(&mut before, &["SCRIPT", "LOAD", "return 1"]).await.unwrap() else { panic!() };
        let sha = String::from_utf8(sha).unwrap();
        server.restart(with_data);
        assert!(ask(&mut before, &["PING"]).await.unwrap_err().is_connection_dropped());
        let mut after = client(&server).await;
        assert_eq!(server.connections(), 1);
        assert_eq!(ask(&mut after, &["EXISTS", "k"]).await.unwrap(), Value::Int(with_data.into()));
        let unknown = ask(&mut after, &["EVALSHA", &sha, "0"]).await.unwrap_err();
        assert_eq!(unknown.code(), Some("NOSCRIPT"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_loses_what_was_buffered() {
    let server = EmbeddedServer::new();
    let mut client = client(&server).await;
    server.freeze();
    assert!(timeout(millis(1), ask(&mut client, &["SET", "k", "v"])).await.is_err());
    server.restart(true);
    server.thaw();
    assert!(server.command(&["GET", "k"]).unwrap().is_nil());

    // A copy belongs to no connection, and is lost with the server all the same.
    let mut client = crate::support::client(&server).await;
    server.inject(Match::nth(1).command("INCR"), Fault::Duplicate(millis(10)));
    ask(&mut client, &["INCR", "n"]).await.unwrap();
    server.freeze();
    tokio::time::sleep(millis(20)).await;
    server.restart(true);
    server.freeze();
    server.thaw();
    assert_eq!(server.command(&["GET", "n"]).unwrap().as_text(), Some("1"));
}

#[tokio::test(start_paused = true)]
async fn a_stopped_server_refuses_connections_until_it_is_started() {
    let server = EmbeddedServer::new();
    server.stop();
    assert!(crate::support::try_client(&server, redis::ProtocolVersion::RESP3).await.is_err());
    server.start(true);
    client(&server).await;
}

#[tokio::test(start_paused = true)]
async fn connections_end_with_the_server() {
    let server = EmbeddedServer::new();
    let mut client = client(&server).await;
    drop(server);
    assert!(ask(&mut client, &["PING"]).await.unwrap_err().is_connection_dropped());
}

#[tokio::test(start_paused = true)]
async fn keys_expire_by_the_server_s_clock() {
    let server = EmbeddedServer::new();
    let mut client = client(&server).await;
    acquire(&mut client, A).await.unwrap();
    server.clock().set_rate(1_000_000); // twice as fast
    tokio::time::sleep(millis(4_900)).await;
    assert_eq!(word(acquire(&mut client, B).await), "held");
    tokio::time::sleep(millis(101)).await;
    assert_eq!(word(acquire(&mut client, B).await), "granted");
    server.clock().set_rate(0);
    server.clock().step_back(millis(3_000));
    assert_eq!(server.command(&["PTTL", "k"]).unwrap().as_int(), Some(13_000));
    server.clock().step_forward(millis(13_001));
    assert_eq!(word(acquire(&mut client, A).await), "granted");
}

#[tokio::test(start_paused = true)]
async fn the_time_stands_still_for_one_script() {
    let server = EmbeddedServer::new();
    let script = "local a = redis.call('TIME') for i = 1, 100000 do end local b = redis.call('TIME')
        return a[1] == b[1] and a[2] == b[2]";
    assert_eq!(server.command(&["EVAL", script, "0"]).unwrap().as_int(), Some(1));
}

/// What a server executes when two clients work on it and things go wrong.
fn story() -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let server = EmbeddedServer::new();
        server.inject(Match::nth(5).command("EVAL"), Fault::DelayCommand(millis(70)));
        server.inject(Match::nth(7).command("EVAL"), Fault::CutAfter);
        server.inject(Match::nth(9).command("EVAL"), Fault::Duplicate(millis(33)));
        let work = |token: &'static str, pause| {
            let server = &server;
            async move {
                let mut connection = client(server).await;
                for _ in 0..20 {
                    if acquire(&mut connection, token).await.is_err() {
                        connection = client(server).await;
                    }
                    tokio::time::sleep(millis(pause)).await;
                }
            }
        };
        tokio::join!(work(A, 13), work(B, 17));
        server.log().iter().map(ToString::to_string).collect()
    })
}

#[test]
fn two_runs_are_alike() {
    let first = story();
    assert!(first.len() > 40, "{first:#?}");
    assert_eq!(story(), first);
}

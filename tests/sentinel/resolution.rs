//! Asking the Sentinels, of which some are dead, wrong, or closed to us.

use std::sync::{Arc, Mutex};

use distlock::{LockError, LockManager, Login};
use distlock_testkit::{SentinelSet, Server, sentinels_or_skip};

use crate::{ms, timed};

fn urls(sentinels: &[Server]) -> String {
    let hosts: Vec<_> = sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port())).collect();
    format!("redis+sentinel://{}", hosts.join(","))
}

async fn error(url: String) -> LockError {
    let (refused, took) = timed(LockManager::connect(url)).await;
    assert!(took < ms(1200), "{took:?}");
    refused.unwrap_err()
}

#[tokio::test]
async fn the_logins_of_the_sentinels_and_of_the_primary_are_two() {
    let set = sentinels_or_skip!(SentinelSet::builder().password("data1").sentinel_password("guard1"));
    let locks = LockManager::connect(set.url()).await.unwrap();
    locks.lock("k").run(async |_| ()).await.unwrap();
    let hosts = urls(set.sentinels());
    let with_login = hosts.replace("://", "://:data1@");
    for url in [format!("{with_login}/mymaster"), format!("{with_login}/mymaster?sentinel_password=wrong1")] {
        let error = error(url).await;
        assert!(matches!(error, LockError::Permission(_)), "{error:?}");
        assert!(error.to_string().contains("sentinel_password=..."), "{error}");
        assert!(!error.to_string().contains("data1") && !error.to_string().contains("wrong1"), "{error}");
    }
    let error = error(format!("{hosts}/mymaster?sentinel_password=guard1")).await;
    assert!(matches!(error, LockError::Permission(_)), "{error:?}");
    assert!(error.to_string().contains("mymaster") && error.to_string().contains("user:password@"), "{error}");
}

#[tokio::test]
async fn a_provider_gives_the_login_of_the_primary_also_of_the_next_one_and_not_that_of_the_sentinels() {
    let set = sentinels_or_skip!(SentinelSet::builder().password("data1").sentinel_password("guard1"));
    let user = |password: &str| {
        for node in set.nodes() {
            let rule = ["ACL", "SETUSER", "app", "on", "resetpass", &format!(">{password}"), "~*", "&*", "+@all"];
            node.command(&rule).unwrap();
        }
    };
    user("old");
    let password = Arc::new(Mutex::new("wrong"));
    let provided = || {
        let cell = password.clone();
        let url = format!("{}/mymaster?sentinel_password=guard1", urls(set.sentinels()));
        LockManager::builder().url(url).credentials(move || {
            let login = Login::new("app", *cell.lock().unwrap());
            async move { Ok(login) }
        })
    };
    let error = provided().build().await.unwrap_err();
    assert!(matches!(error, LockError::Permission(_)), "{error:?}");
    assert!(error.to_string().contains("the provider of `Builder::credentials`"), "{error}");
    *password.lock().unwrap() = "old";
    let locks = provided().build().await.unwrap();
    let lease = locks.lock("k").ttl(ms(9000)).acquire().await.unwrap();
    let old = set.primary().unwrap();
    let clients = old.command(&["CLIENT", "LIST"]).unwrap();
    assert!(clients.as_text().unwrap().contains("user=app"), "{clients:?}");

    user("new");
    *password.lock().unwrap() = "new";
    old.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).unwrap();
    tokio::time::sleep(ms(3500)).await;
    assert!(lease.remaining() > ms(5000), "{:?}", lease.remaining());
    assert_eq!(old.command(&["WAIT", "2", "5000"]).unwrap().as_int(), Some(2));

    user("third");
    *password.lock().unwrap() = "third";
    old.kill().unwrap();
    set.wait_for_failover(old).unwrap();
    tokio::time::sleep(ms(4000)).await;
    assert!(lease.remaining() > ms(4000), "{:?}", lease.remaining());
    let _ = lease.release().await;
    locks.lock("k").wait(ms(2000)).run(async |_| ()).await.unwrap();
}

#[tokio::test]
async fn each_mistake_in_the_url_is_named() {
    let set = sentinels_or_skip!();
    let unknown = error(format!("{}/mynaster", urls(set.sentinels()))).await;
    assert!(matches!(unknown, LockError::Config(_)), "{unknown:?}");
    assert!(unknown.to_string().contains("no primary `mynaster`, but `mymaster`"), "{unknown}");

    let servers = error(format!("{}/mymaster", urls(set.nodes()))).await;
    assert!(matches!(servers, LockError::Config(_)), "{servers:?}");
    assert!(servers.to_string().contains("is no Sentinel"), "{servers}");

    let nobody = error("redis+sentinel://127.0.0.1:1,127.0.0.1:2/mymaster".to_owned()).await;
    assert!(matches!(nobody, LockError::Unavailable(_)), "{nobody:?}");
    assert!(nobody.to_string().contains("127.0.0.1:1") && nobody.to_string().contains("26379"), "{nobody}");

    let nameless = error(urls(set.sentinels())).await;
    assert!(matches!(nameless, LockError::Config(_)), "{nameless:?}");
    assert!(nameless.to_string().contains("names no primary"), "{nameless}");
}

#[tokio::test]
async fn one_sentinel_that_wants_a_login_does_not_make_an_outage_of_the_others_a_refusal() {
    let set = sentinels_or_skip!();
    let [closed, others @ ..] = set.sentinels() else { panic!() };
    closed.command(&["ACL", "SETUSER", "default", "resetpass", ">other1"]).unwrap();
    LockManager::connect(set.url()).await.unwrap();
    others.iter().for_each(|other| other.kill().unwrap());
    let error = error(set.url()).await;
    assert!(matches!(error, LockError::Unavailable(_)) && error.is_retryable(), "{error:?}");
    // What can be mended is told all the same.
    assert!(error.to_string().contains("sentinel_password=..."), "{error}");
}

/// What `docs/operations.md` allows a user at the Sentinels.
fn documented_rule() -> Vec<String> {
    let guide = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/operations.md")).unwrap();
    let (_, rest) = guide.split_once("ACL SETUSER watcher on >PASSWORD").unwrap();
    let (rule, _) = rest.split_once("```").unwrap();
    rule.split_whitespace().filter(|word| *word != "\\").map(str::to_owned).collect()
}

#[tokio::test]
async fn the_documented_rule_is_enough_at_the_sentinels() {
    let set = sentinels_or_skip!();
    let rule = documented_rule();
    let url = |rule: &[&String]| {
        for sentinel in set.sentinels() {
            let words = rule.iter().map(|word| word.as_str());
            let command: Vec<_> =
                ["ACL", "SETUSER", "watcher", "reset", "on", ">guard1"].into_iter().chain(words).collect();
            sentinel.command(&command).unwrap();
        }
        format!("{}?sentinel_username=watcher&sentinel_password=guard1", set.url())
    };
    // Whether one of them is listened to on both channels.
    let is_watched = || {
        set.sentinels().iter().any(|sentinel| {
            let clients = sentinel.command(&["CLIENT", "LIST"]).unwrap();
            clients.as_text().unwrap().lines().any(|it| it.contains("user=watcher") && it.contains(" sub=2 "))
        })
    };
    let locks = LockManager::connect(url(&rule.iter().collect::<Vec<_>>())).await.unwrap();
    locks.lock("k").run(async |_| ()).await.unwrap();
    let begun = std::time::Instant::now();
    while !is_watched() {
        assert!(begun.elapsed() < ms(5000), "nobody watches");
        tokio::time::sleep(ms(20)).await;
    }
    let mynaster = format!("{}/mynaster?sentinel_username=watcher&sentinel_password=guard1", urls(set.sentinels()));
    assert!(error(mynaster).await.to_string().contains("but `mymaster`"));
    drop(locks);
    let asking: Vec<_> = rule.iter().filter(|word| *word != "+sentinel|get-master-addr-by-name").collect();
    let refused = error(url(&asking)).await;
    assert!(matches!(refused, LockError::Permission(_)), "{refused:?}");
}

#[tokio::test]
async fn dead_and_frozen_sentinels_cost_no_more_than_their_own_time_out() {
    let set = sentinels_or_skip!();
    let [first, second, third] = set.sentinels() else { panic!() };
    let connect = async |limit| {
        let (locks, took) = timed(LockManager::connect(set.url())).await;
        locks.unwrap().lock("k").run(async |_| ()).await.unwrap();
        assert!(took < limit, "{took:?}");
    };
    // The two that are left are most of three.
    first.pause().unwrap();
    connect(ms(250)).await;
    second.kill().unwrap();
    connect(ms(700)).await;
    first.kill().unwrap();
    connect(ms(250)).await;
    third.pause().unwrap();
    let error = error(set.url()).await;
    assert!(matches!(error, LockError::Unavailable(_)), "{error:?}");
    assert!(error.to_string().contains("no answer within"), "{error}");
    third.resume().unwrap();
}

#[tokio::test]
async fn a_sentinel_that_names_another_server_is_outvoted() {
    let set = sentinels_or_skip!();
    let other = Server::spawn().unwrap();
    let [liar, second, third] = set.sentinels() else { panic!() };
    liar.command(&["SENTINEL", "REMOVE", set.name()]).unwrap();
    liar.command(&["SENTINEL", "MONITOR", set.name(), "127.0.0.1", &other.port().to_string(), "2"]).unwrap();
    for _ in 0..10 {
        let locks = LockManager::connect(set.url()).await.unwrap();
        locks.lock("k").run(async |_| ()).await.unwrap();
    }
    assert_eq!(other.calls("evalsha").unwrap() + other.calls("eval").unwrap(), 0);
    // What it names does not answer; the next best does.
    third.kill().unwrap();
    other.kill().unwrap();
    for _ in 0..4 {
        LockManager::connect(set.url()).await.unwrap().lock("k").run(async |_| ()).await.unwrap();
    }
    second.kill().unwrap();
    let refused = error(set.url()).await;
    assert!(matches!(refused, LockError::Unavailable(_)), "{refused:?}");
}

#[tokio::test]
async fn a_replica_is_not_taken_for_the_primary() {
    let set = sentinels_or_skip!();
    let replica = set.replicas().unwrap()[0].port().to_string();
    let [liar, others @ ..] = set.sentinels() else { panic!() };
    others.iter().for_each(|other| other.kill().unwrap());
    liar.command(&["SENTINEL", "REMOVE", set.name()]).unwrap();
    // Alone it can do nothing about what it sees.
    liar.command(&["SENTINEL", "MONITOR", set.name(), "127.0.0.1", &replica, "3"]).unwrap();
    let error = error(set.url()).await;
    assert!(matches!(error, LockError::Unavailable(_)), "{error:?}");
    assert!(error.to_string().contains("says that it is a replica"), "{error}");
}

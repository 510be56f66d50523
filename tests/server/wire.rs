//! D9: what stands on the server, what is sent, and how other clients and we see each other.

use distlock::{LockError, LockManager, Release};
use distlock_testkit::{Reply, Server, server_or_skip};

use crate::support::{ask, exists, manager, ms, timed};

fn value(server: &Server, key: &str) -> Vec<String> {
    let Reply::Text(value) = ask(server, &["GET", key]) else { panic!("`{key}` holds no text") };
    value.split(' ').map(str::to_owned).collect()
}

#[tokio::test]
async fn the_value_tells_token_fencing_token_holder_and_since() {
    let server = server_or_skip!();
    let locks = manager(&server).await;
    let lease = locks.lock("order:7").ttl(ms(5000)).acquire().await.unwrap();
    let value = value(&server, "distlock:order:7");
    assert_eq!(value.len(), 5, "{value:?}");
    assert_eq!(value[0].len(), 36);
    assert_eq!(value[1], lease.fencing_token().to_string());
    let (host, pid) = value[2].rsplit_once('/').unwrap();
    assert!(!host.is_empty());
    assert_eq!(pid, std::process::id().to_string());
    assert!(value[3].contains("wire.rs"), "{value:?}");
    assert!(value[4].parse::<u64>().unwrap() <= lease.fencing_token());
    let left = ask(&server, &["PTTL", "distlock:order:7"]).as_int().unwrap();
    assert!((4000..=5000).contains(&left), "{left}");
    lease.release().await.unwrap();
    assert!(!exists(&server, "distlock:order:7"));
    // The counter of the namespace is all that stays.
    assert_eq!(ask(&server, &["DBSIZE"]).as_int(), Some(1));
}

#[tokio::test]
async fn uncontended_it_is_one_command_to_acquire_and_one_to_release() {
    let server = server_or_skip!();
    let locks = manager(&server).await;
    // The first round teaches the server the scripts.
    locks.lock("k").run(async |_| ()).await.unwrap();
    let mut log = server.monitor().unwrap();
    for _ in 0..10 {
        locks.lock("k").run(async |_| ()).await.unwrap();
    }
    let sent: Vec<_> = log.sent().unwrap().iter().map(|seen| seen.name()).collect();
    assert_eq!(sent, vec!["EVALSHA"; 20]);
}

#[tokio::test]
async fn a_key_of_this_process_s_own_is_found_busy_without_a_command() {
    let server = server_or_skip!();
    let locks = manager(&server).await;
    let _held = locks.lock("k").acquire().await.unwrap();
    let mut log = server.monitor().unwrap();
    let LockError::Busy(busy) = locks.lock("k").acquire().await.unwrap_err() else { panic!() };
    assert_eq!(busy.holder().unwrap().pid(), std::process::id());
    assert!(log.sent().unwrap().is_empty());
}

#[tokio::test]
async fn a_call_that_found_the_key_taken_sends_no_release() {
    let server = server_or_skip!();
    let (a, b) = (manager(&server).await, manager(&server).await);
    let held = b.lock("k").acquire().await.unwrap();
    a.lock("other").run(async |_| ()).await.unwrap();
    let mut log = server.monitor().unwrap();
    let LockError::Busy(busy) = a.lock("k").acquire().await.unwrap_err() else { panic!() };
    assert!(busy.holder().unwrap().function().contains("wire.rs"));
    assert_eq!(busy.holder().unwrap().fencing_token(), Some(held.fencing_token()));
    assert!(busy.held_for().is_some() && busy.retry_after().unwrap() > ms(25_000));
    assert_eq!(log.sent().unwrap().len(), 1);
    assert_eq!(held.release().await.unwrap(), Release::Released);
}

#[tokio::test]
async fn a_flushed_script_cache_costs_one_more_trip_and_nothing_else() {
    let server = server_or_skip!();
    let locks = manager(&server).await;
    let flush = || assert_eq!(ask(&server, &["SCRIPT", "FLUSH"]), Reply::Text("OK".into()));
    let mut log = server.monitor().unwrap();
    flush();
    let lease = locks.lock("k").acquire().await.unwrap();
    flush();
    lease.extend(ms(60_000)).await.unwrap();
    flush();
    assert_eq!(lease.release().await.unwrap(), Release::Released);
    let sent: Vec<_> =
        log.sent().unwrap().iter().map(|seen| seen.name()).filter(|name| name.starts_with("EVAL")).collect();
    assert_eq!(sent, ["EVALSHA", "EVAL", "EVALSHA", "EVAL", "EVALSHA", "EVAL"]);
}

#[tokio::test]
async fn other_clients_that_use_set_nx_px_exclude_us_and_are_excluded() {
    let server = server_or_skip!();
    let locks = manager(&server).await;
    let set = |value| ask(&server, &["SET", "distlock:k", value, "NX", "PX", "300"]);
    assert_eq!(set("somebody"), Reply::Text("OK".into()));
    let LockError::Busy(busy) = locks.lock("k").acquire().await.unwrap_err() else { panic!() };
    assert!(busy.holder().is_none());
    let (lease, took) = timed(locks.lock("k").wait(ms(2000)).acquire()).await;
    assert!(took >= ms(200) && took < ms(600), "{took:?}");
    assert!(set("somebody").is_nil());
    lease.unwrap().release().await.unwrap();
    assert_eq!(set("somebody"), Reply::Text("OK".into()));
}

#[tokio::test]
async fn what_is_no_lock_under_our_name_is_reported_and_never_touched() {
    let server = server_or_skip!();
    let locks = manager(&server).await;
    ask(&server, &["SET", "distlock:forever", "x"]);
    ask(&server, &["RPUSH", "distlock:list", "x"]);
    ask(&server, &["SET", "{counted}:fence", "not a number"]);
    let counted = LockManager::builder().url(server.url()).namespace("counted").build().await.unwrap();
    for (locks, key, word) in [(&locks, "forever", "expiry"), (&locks, "list", "type"), (&counted, "k", "counter")] {
        let error = locks.lock(key).wait(ms(500)).acquire().await.unwrap_err();
        assert!(matches!(error, LockError::InvalidKey(_)), "{error:?}");
        assert!(error.to_string().contains(word) && error.to_string().contains(';'), "{error}");
    }
    assert_eq!(ask(&server, &["GET", "distlock:forever"]), Reply::Text("x".into()));
    assert_eq!(ask(&server, &["LLEN", "distlock:list"]).as_int(), Some(1));
    assert_eq!(ask(&server, &["GET", "{counted}:fence"]), Reply::Text("not a number".into()));
}

#[tokio::test]
async fn fencing_tokens_rise_over_release_expiry_deletion_and_loss_of_all_data() {
    let server = server_or_skip!();
    let locks = manager(&server).await;
    let mut last = 0;
    for round in 0..40 {
        let lease = locks.lock("k").ttl(ms(100)).wait(ms(2000)).acquire().await.unwrap();
        assert!(lease.fencing_token() > last, "round {round}: {} after {last}", lease.fencing_token());
        last = lease.fencing_token();
        lease.extend(ms(200)).await.unwrap();
        assert_eq!(lease.fencing_token(), last);
        match round % 4 {
            0 => drop(lease.release().await.unwrap()),
            1 => drop(lease),
            2 => assert_eq!(ask(&server, &["DEL", "distlock:k"]).as_int(), Some(1)),
            _ => assert_eq!(ask(&server, &["FLUSHALL"]), Reply::Text("OK".into())),
        }
    }
}

#[tokio::test]
async fn a_counter_that_is_ahead_of_the_clock_is_followed_and_not_overtaken() {
    let server = server_or_skip!();
    let locks = manager(&server).await;
    // 2^53 − 3: doubles still count in ones here.
    ask(&server, &["SET", "{distlock}:fence", "9007199254740989"]);
    let token = async || locks.lock("k").run(async |lease| lease.fencing_token()).await;
    assert_eq!(token().await.unwrap(), 9_007_199_254_740_990);
    assert_eq!(token().await.unwrap(), 9_007_199_254_740_991);
    assert!(matches!(token().await.unwrap_err(), LockError::InvalidKey(_)));
}

#[tokio::test]
async fn durations_reach_the_server_unrounded() {
    let server = server_or_skip!();
    let locks = LockManager::builder().url(server.url()).grace(ms(250)).build().await.unwrap();
    locks.lock("k").run(async |_| ()).await.unwrap();
    let mut log = server.monitor().unwrap();
    locks.lock("k").ttl(ms(500)).run(async |_| ()).await.unwrap();
    let sets: Vec<_> =
        log.seen().unwrap().into_iter().filter(|seen| seen.name() == "SET" && seen.parts.len() > 4).collect();
    assert_eq!(sets.len(), 1);
    assert_eq!(sets[0].parts[3..], ["PX", "750"]);
}

#[tokio::test]
async fn hash_tags_and_long_keys_work_on_the_server() {
    let server = server_or_skip!();
    let locks = manager(&server).await;
    let tagged = locks.lock("{shop:7}:coupon:42").acquire().await.unwrap();
    assert!(exists(&server, "distlock:{shop:7}:coupon:42"));
    tagged.release().await.unwrap();
    let long = "x".repeat(100_000);
    let lease = locks.lock(&long).acquire().await.unwrap();
    assert!(locks.clone().lock(&long).try_acquire().await.unwrap().is_none());
    let Reply::List(keys) = ask(&server, &["KEYS", "distlock:x*"]) else { panic!() };
    assert!(keys.len() == 1 && keys[0].as_text().unwrap().len() < 600);
    lease.release().await.unwrap();
}

#[tokio::test]
async fn min_hold_leaves_the_key_to_nobody_and_says_who_it_was() {
    let server = server_or_skip!();
    let locks = manager(&server).await;
    locks.lock("cron").ttl(ms(300)).min_hold(ms(2000)).run(async |_| ()).await.unwrap();
    let value = value(&server, "distlock:cron");
    assert_eq!(value[0], "00000000-0000-0000-0000-000000000000");
    let left = ask(&server, &["PTTL", "distlock:cron"]).as_int().unwrap();
    assert!((1500..=2000).contains(&left), "{left}");
    let LockError::Busy(busy) = locks.lock("cron").acquire().await.unwrap_err() else { panic!() };
    assert!(busy.holder().unwrap().function().contains("wire.rs"));
}

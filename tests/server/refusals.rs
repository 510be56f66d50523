//! Servers that refuse: logins, permissions, memory.

use distlock::{LockError, LockManager, Release};
use distlock_testkit::{Reply, Server, server_or_skip};

use crate::support::{ask, exists, manager, ms, timed};

#[tokio::test]
async fn a_wrong_password_is_a_permission_error_that_repeats_no_secret() {
    let server = server_or_skip!(Server::builder().password("correct-horse"));
    let wrong = format!("redis://:wrong-battery@127.0.0.1:{}", server.port());
    for url in [wrong, format!("redis://127.0.0.1:{}", server.port())] {
        let (refused, took) = timed(LockManager::connect(url)).await;
        let error = refused.unwrap_err();
        assert!(matches!(error, LockError::Permission(_)), "{error:?}");
        assert!(took < ms(1000), "{took:?}");
        for text in [error.to_string(), format!("{error:?}")] {
            assert!(!text.contains("battery") && !text.contains("horse"), "{text}");
        }
    }
    let locks = manager(&server).await;
    locks.lock("k").acquire().await.unwrap().release().await.unwrap();
    assert!(!format!("{locks:?}").contains("horse"));
}

#[tokio::test]
async fn a_missing_permission_is_named_and_the_documented_rule_is_enough() {
    let server = server_or_skip!();
    ask(&server, &["ACL", "SETUSER", "poor", "on", ">p", "~distlock:*", "-@all", "+get", "+set", "+hello", "+ping"]);
    let url = |user: &str| format!("redis://{user}:p@127.0.0.1:{}", server.port());
    let poor = LockManager::connect(url("poor")).await.unwrap();
    let error = poor.lock("k").acquire().await.unwrap_err();
    assert!(matches!(error, LockError::Permission(_)), "{error:?}");
    assert!(error.to_string().to_lowercase().contains("evalsha"), "{error}");
    // Scripts may run, but not what they do.
    ask(
        &server,
        &[
            "ACL",
            "SETUSER",
            "half",
            "on",
            ">p",
            "~distlock:*",
            "~{distlock*",
            "-@all",
            "+eval",
            "+evalsha",
            "+get",
            "+hello",
            "+ping",
        ],
    );
    let half = LockManager::connect(url("half")).await.unwrap();
    let error = half.lock("k").acquire().await.unwrap_err();
    assert!(matches!(error, LockError::Permission(_)), "{error:?}");
    let rule = [
        "ACL",
        "SETUSER",
        "app",
        "on",
        ">p",
        "resetkeys",
        "~distlock:*",
        "~{distlock*",
        "~{*}:distlock:*",
        "resetchannels",
        "-@all",
        "+eval",
        "+evalsha",
        "+get",
        "+set",
        "+del",
        "+exists",
        "+pttl",
        "+pexpire",
        "+time",
        "+hello",
        "+ping",
    ];
    ask(&server, &rule);
    let app = LockManager::connect(url("app")).await.unwrap();
    let lease = app.lock("k").acquire().await.unwrap();
    lease.extend(ms(60_000)).await.unwrap();
    assert_eq!(lease.release().await.unwrap(), Release::Released);
    app.lock("k").min_hold(ms(100)).run(async |_| ()).await.unwrap();
    app.lock("{shop:7}:coupon").run(async |_| ()).await.unwrap();
}

#[tokio::test]
async fn out_of_memory_refuses_new_locks_and_still_renews_and_releases() {
    let server = server_or_skip!();
    let locks = manager(&server).await;
    let lease = locks.lock("held").ttl(ms(500)).acquire().await.unwrap();
    ask(&server, &["CONFIG", "SET", "maxmemory", "1"]);
    let error = locks.lock("k").acquire().await.unwrap_err();
    assert!(matches!(error, LockError::Unavailable(_)), "{error:?}");
    assert!(error.to_string().contains("OOM"), "{error}");
    tokio::time::sleep(ms(1000)).await;
    assert!(lease.is_held());
    assert_eq!(lease.release().await.unwrap(), Release::Released);
    assert!(!exists(&server, "distlock:held"));
}

#[tokio::test]
async fn a_failed_snapshot_that_stops_writes_is_an_outage_and_what_is_given_back_meanwhile_goes_later() {
    let server = server_or_skip!();
    let locks = manager(&server).await;
    let (lease, renewed) = (
        locks.lock("held").ttl(ms(30_000)).acquire().await.unwrap(),
        locks.lock("renewed").ttl(ms(1000)).acquire().await.unwrap(),
    );
    ask(&server, &["CONFIG", "SET", "save", "3600 1"]);
    ask(&server, &["CONFIG", "SET", "stop-writes-on-bgsave-error", "yes"]);
    // The folder of the snapshot is gone, so it fails.
    std::fs::remove_dir_all(server.folder()).unwrap();
    let _ = server.command(&["BGSAVE"]);
    crate::support::until("the snapshot has failed", ms(5000), || {
        let Ok(Reply::Text(info)) = server.command(&["INFO", "persistence"]) else { return false };
        info.contains("rdb_last_bgsave_status:err")
    })
    .await;
    let error = locks.lock("k").acquire().await.unwrap_err();
    assert!(matches!(error, LockError::Unavailable(_)), "{error:?}");
    assert!(error.to_string().contains("MISCONF"), "{error}");
    // A script that writes is refused whatever it writes.
    drop(lease);
    assert_eq!(renewed.lost().await.cause(), distlock::LossCause::Expired);
    assert!(exists(&server, "distlock:held"), "it was given back, so nothing was refused");
    ask(&server, &["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]);
    crate::support::until("the key is gone", ms(5000), || !exists(&server, "distlock:held")).await;
}

#[tokio::test]
async fn a_lease_that_the_server_refuses_to_renew_takes_no_other_with_it() {
    let server = server_or_skip!();
    let rule = |keys: &str| {
        let mut parts = vec!["ACL", "SETUSER", "app", "on", ">p", "resetkeys", "+@all"];
        parts.extend(keys.split(' '));
        ask(&server, &parts);
    };
    rule("~distlock:* ~{distlock*");
    let locks = LockManager::connect(format!("redis://app:p@127.0.0.1:{}", server.port())).await.unwrap();
    let good = locks.lock("good").ttl(ms(600)).acquire().await.unwrap();
    let bad = locks.lock("bad").ttl(ms(600)).acquire().await.unwrap();
    rule("~distlock:good ~{distlock:good*");
    assert_eq!(bad.lost().await.cause(), distlock::LossCause::Expired);
    tokio::time::sleep(ms(600)).await;
    assert!(good.is_held());
}

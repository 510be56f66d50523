//! Locks on several real servers, of which one dies, freezes or comes back empty.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use distlock::{LockError, LockManager, Login};
use distlock_testkit::{Server, server_or_skip};
use tokio::time::sleep;

use crate::support::ms;

fn builder(servers: &[Server]) -> distlock::Builder {
    LockManager::builder().redlock(servers.iter().map(Server::url))
}

fn stands(server: &Server, key: &str) -> bool {
    server.command(&["GET", &format!("distlock:{key}")]).unwrap().as_text().is_some()
}

async fn gone(server: &Server, key: &str, limit: Duration) {
    let begun = Instant::now();
    while stands(server, key) {
        assert!(begun.elapsed() < limit, "`{key}` is still there");
        sleep(ms(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_minority_may_die_and_a_majority_is_missed() {
    // The first one is there to be skipped for.
    let mut servers = vec![server_or_skip!()];
    servers.extend(Server::spawn_many(2).unwrap());
    let urls: Vec<_> = servers.iter().map(Server::url).collect();
    let locks = LockManager::connect(format!("redlock:{}", urls.join(","))).await.unwrap();
    let lease = locks.lock("k").ttl(ms(2000)).acquire().await.unwrap();
    let begun = Instant::now();
    while !servers.iter().all(|server| stands(server, "k")) {
        assert!(begun.elapsed() < ms(500), "not on all servers");
        sleep(ms(1)).await;
    }
    servers[0].kill().unwrap();
    sleep(ms(3000)).await;
    lease.ensure_held().unwrap();
    lease.release().await.unwrap();
    locks.lock("k").run(async |lease| lease.ensure_held()).await.unwrap().unwrap();
    servers[1].kill().unwrap();
    let refused = locks.lock("k").acquire().await.unwrap_err();
    assert!(matches!(refused, LockError::NoQuorum(_)), "{refused}");
    let refused = builder(&servers).build().await.unwrap_err();
    assert!(matches!(refused, LockError::Unavailable(_)), "{refused}");
    servers[0].restart_empty().unwrap();
    let lease = locks.lock("k").wait(ms(2000)).acquire().await.unwrap();
    assert!(stands(&servers[0], "k") && stands(&servers[2], "k"));
    lease.release().await.unwrap();
    servers[1].restart_empty().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_freezes_delays_nobody_and_keeps_nothing() {
    // The first one is there to be skipped for.
    let mut servers = vec![server_or_skip!()];
    servers.extend(Server::spawn_many(2).unwrap());
    let locks = builder(&servers).build().await.unwrap();
    locks.lock("warm").run(async |_| ()).await.unwrap();
    let held = locks.lock("held").ttl(ms(60_000)).acquire().await.unwrap();
    servers[2].pause().unwrap();
    for round in 0..20 {
        locks.lock(format!("k{round}")).ttl(ms(60_000)).run(async |_| ()).await.unwrap();
    }
    held.release().await.unwrap();
    servers[2].resume().unwrap();
    // All that was left there would live for a minute.
    gone(&servers[2], "held", ms(5000)).await;
    for round in 0..20 {
        gone(&servers[2], &format!("k{round}"), ms(5000)).await;
    }
}

#[test]
fn what_a_dead_server_owes_outlives_the_runtime_and_the_manager() {
    let mut servers = vec![server_or_skip!()];
    servers.extend(Server::spawn_many(1).unwrap());
    servers.push(Server::builder().append_only().spawn().unwrap());
    let once = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    once.block_on(async {
        let locks = builder(&servers).build().await.unwrap();
        let lease = locks.lock("k").ttl(ms(60_000)).acquire().await.unwrap();
        let begun = Instant::now();
        while !stands(&servers[2], "k") {
            assert!(begun.elapsed() < ms(2000), "not on all servers");
            sleep(ms(1)).await;
        }
        servers[2].kill().unwrap();
        lease.release().await.unwrap();
        assert_eq!(locks.shutdown(ms(100)).await.left, 1);
    });
    drop(once);
    servers[2].restart_with_data().unwrap();
    let begun = Instant::now();
    while stands(&servers[2], "k") {
        assert!(begun.elapsed() < ms(5000), "it is still there");
        std::thread::sleep(ms(5));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_comes_back_with_an_older_state_does_not_vote() {
    let server = || Server::builder().append_only();
    let servers = [server_or_skip!(server()), server().spawn().unwrap(), server().spawn().unwrap()];
    let build = |builder: distlock::Builder| builder.quarantine(true).max_ttl(ms(3000)).default_ttl(ms(2000)).build();
    let second = build(builder(&servers)).await.unwrap();
    second.bootstrap().await.unwrap();
    second.lock("warm").run(async |_| ()).await.unwrap();
    // From here on it writes nothing to its file.
    servers[1].command(&["CONFIG", "SET", "appendonly", "no"]).unwrap();
    let reached = [servers[0].url(), servers[1].url(), "redis://127.0.0.1:1".to_owned()];
    let first = build(LockManager::builder().redlock(reached)).await.unwrap();
    let lease = first.lock("k").acquire().await.unwrap();
    servers[1].kill().unwrap();
    servers[1].restart_with_data().unwrap();
    assert!(servers[1].command(&["GET", "{distlock}:epoch"]).unwrap().as_text().is_some(), "it forgot everything");
    assert!(!stands(&servers[1], "k"));
    while lease.is_held() {
        let refused = second.lock("k").try_acquire().await;
        assert!(!matches!(refused, Ok(Some(_))) || !lease.is_held(), "two at a time");
        sleep(ms(20)).await;
    }
    drop(lease);
    second.lock("k").wait(ms(6000)).run(async |_| ()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_that_a_provider_gives_is_changed_on_all_servers_while_a_lease_is_held() {
    let server = || Server::builder().password("kit");
    let servers = [server_or_skip!(server()), server().spawn().unwrap(), server().spawn().unwrap()];
    let user = |password: &str| {
        for server in &servers {
            let rule = ["ACL", "SETUSER", "app", "on", "resetpass", &format!(">{password}"), "~*", "&*", "+@all"];
            server.command(&rule).unwrap();
        }
    };
    user("old");
    let password = Arc::new(Mutex::new("wrong"));
    let provided = || {
        let cell = password.clone();
        let urls = servers.iter().map(|server| format!("redis://127.0.0.1:{}", server.port()));
        LockManager::builder().redlock(urls).credentials(move || {
            let login = Login::new("app", *cell.lock().unwrap());
            async move { Ok(login) }
        })
    };
    let refused = provided().build().await.unwrap_err();
    assert!(matches!(refused, LockError::Permission(_)), "{refused:?}");
    assert!(refused.to_string().contains("the provider of `Builder::credentials`"), "{refused}");
    *password.lock().unwrap() = "old";
    let locks = provided().build().await.unwrap();
    let lease = locks.lock("k").ttl(ms(1500)).acquire().await.unwrap();
    for next in ["new", "third"] {
        user(next);
        *password.lock().unwrap() = next;
        for server in &servers {
            for kind in ["normal", "pubsub"] {
                server.command(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]).unwrap();
            }
        }
        sleep(ms(2000)).await;
        lease.ensure_held().unwrap();
        assert!(servers.iter().all(|server| stands(server, "k")), "not on all servers");
        locks.lock("other").wait(ms(1000)).run(async |_| ()).await.unwrap();
    }
    lease.release().await.unwrap();
    for server in &servers {
        gone(server, "k", ms(2000)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_holder_at_a_time_while_servers_die_freeze_and_forget() {
    const CLIENTS: usize = 4;
    // The first one is there to be skipped for.
    let mut servers = vec![server_or_skip!()];
    servers.extend(Server::spawn_many(2).unwrap());
    let build = || builder(&servers).quarantine(true).max_ttl(ms(800)).default_ttl(ms(600)).build();
    build().await.unwrap().bootstrap().await.unwrap();
    let (inside, holds, last) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)), Arc::new(AtomicU64::new(0)));
    let until = Instant::now() + Duration::from_secs(8);
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let locks = build().await.unwrap();
        let (inside, holds, last) = (inside.clone(), holds.clone(), last.clone());
        clients.push(tokio::spawn(async move {
            while Instant::now() < until {
                let held = locks.lock("k").wait(ms(2000)).try_run(async |lease| {
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two at a time");
                    let token = lease.fencing_token();
                    assert!(last.swap(token, Ordering::SeqCst) < token, "a token that is not larger");
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    Ok::<(), LockError>(())
                });
                match held.await {
                    Ok(()) => drop(holds.fetch_add(1, Ordering::Relaxed)),
                    Err(LockError::Busy(_) | LockError::NoQuorum(_) | LockError::Unavailable(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }));
    }
    // One server at a time, and time for it to get over its quarantine.
    let mut victim = 0;
    while Instant::now() < until {
        sleep(ms(300)).await;
        let server = &servers[victim % 3];
        if victim % 2 == 0 {
            server.kill().unwrap();
            sleep(ms(100)).await;
            server.restart_empty().unwrap();
            sleep(ms(900)).await;
        } else {
            server.pause().unwrap();
            sleep(ms(300)).await;
            server.resume().unwrap();
        }
        victim += 1;
    }
    for client in clients {
        client.await.unwrap();
    }
    assert!(holds.load(Ordering::Relaxed) > 200, "{holds:?}");
    sleep(ms(700)).await;
    for server in &servers {
        gone(server, "k", ms(2000)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_come_back_from_a_snapshot_are_no_new_deployment() {
    let server = || Server::builder().append_only();
    let servers = [server_or_skip!(server()), server().spawn().unwrap(), server().spawn().unwrap()];
    let build = || builder(&servers).quarantine(true).max_ttl(ms(20_000)).default_ttl(ms(15_000)).build();
    let first = build().await.unwrap();
    first.bootstrap().await.unwrap();
    first.lock("warm").run(async |_| ()).await.unwrap();
    // From here on they write nothing to their files.
    servers.iter().for_each(|server| drop(server.command(&["CONFIG", "SET", "appendonly", "no"]).unwrap()));
    let lease = first.lock("k").acquire().await.unwrap();
    servers.iter().for_each(|server| server.kill().unwrap());
    servers.iter().for_each(|server| server.restart_with_data().unwrap());
    let second = build().await.unwrap();
    // Each has an epoch, of another run.
    let told = second.bootstrap().await;
    let taken = second.lock("k").acquire().await;
    assert!(lease.is_held());
    assert!(told.is_err() && taken.is_err(), "{told:?}, two hold the lock: {}", taken.is_ok());
}

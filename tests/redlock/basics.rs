//! What holds on one server holds on several.

use distlock::{LockError, Release};
use tokio::time::{Instant, sleep};

use crate::support::{comes_to_stand, manager, ms, on, servers, stands};

#[tokio::test(start_paused = true)]
async fn a_lease_stands_on_all_servers_and_is_given_back_on_all() {
    for count in [1, 2, 3, 4, 5] {
        let servers = servers(count);
        let locks = manager(&servers).await;
        let lease = locks.lock("k").ttl(ms(1000)).acquire().await.unwrap();
        comes_to_stand(&servers, "k", count, ms(10)).await;
        // Renewed on all of them.
        sleep(ms(5000)).await;
        assert!(lease.is_held());
        assert_eq!(stands(&servers, "k"), count);
        assert_eq!(lease.release().await.unwrap(), Release::Released);
        comes_to_stand(&servers, "k", 0, ms(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn somebody_elses_lease_is_busy_and_says_whose() {
    let servers = servers(3);
    let (holder, locks) = (manager(&servers).await, manager(&servers).await);
    let lease = holder.lock("k").ttl(ms(10_000)).acquire().await.unwrap();
    for wait in [0, 700] {
        let begun = Instant::now();
        let LockError::Busy(busy) = locks.lock("k").wait(ms(wait)).acquire().await.unwrap_err() else { panic!() };
        assert!(busy.holder().unwrap().function().contains("basics.rs"), "{busy}");
        assert!(busy.retry_after().unwrap() > ms(5000));
        assert!(begun.elapsed() >= ms(wait) && begun.elapsed() <= ms(wait + 20), "{:?}", begun.elapsed());
    }
    lease.release().await.unwrap();
    drop(locks.lock("k").acquire().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn who_waits_comes_in_soon_after_the_release_and_with_a_larger_fencing_token() {
    let servers = servers(3);
    let (holder, locks) = (manager(&servers).await, manager(&servers).await);
    let mut last = 0;
    for _ in 0..20 {
        let lease = holder.lock("k").ttl(ms(10_000)).acquire().await.unwrap();
        assert!(lease.fencing_token() > last);
        last = lease.fencing_token();
        let waiting = tokio::spawn({
            let locks = locks.clone();
            async move { locks.lock("k").wait(ms(5000)).acquire().await.unwrap() }
        });
        sleep(ms(300)).await;
        let released_at = Instant::now();
        lease.release().await.unwrap();
        let lease = waiting.await.unwrap();
        assert!(released_at.elapsed() <= ms(200), "{:?}", released_at.elapsed());
        assert!(lease.fencing_token() > last);
        last = lease.fencing_token();
        lease.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn of_many_that_ask_at_the_same_moment_one_gets_in_without_waiting() {
    for count in [3, 4, 5] {
        let servers = servers(count);
        let mut managers = Vec::new();
        for _ in 0..5 {
            managers.push(manager(&servers).await);
        }
        for round in 0..20 {
            let key = format!("k{round}");
            let asked = managers.iter().map(|locks| {
                let (locks, key) = (locks.clone(), key.clone());
                tokio::spawn(async move { locks.lock(key).ttl(ms(60_000)).try_acquire().await })
            });
            let mut leases = Vec::new();
            for answer in asked.collect::<Vec<_>>() {
                leases.extend(answer.await.unwrap().unwrap());
            }
            assert_eq!(leases.len(), 1, "of {count} servers");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_number_is_granted_only_above_all_that_a_majority_has_accepted() {
    let servers = servers(3);
    let (locks, other) = (manager(&servers).await, manager(&servers).await);
    let mut last = locks.lock("k").acquire().await.unwrap().fencing_token();
    for far in [7_000_000, 3_000_000_000] {
        // As if a client with a clock that is ahead had been there: on one server, which a majority may not ask.
        let ahead = last + far;
        servers[1].command(&["SET", "{distlock}:fence", &ahead.to_string()]).unwrap();
        servers[2].command(&["SET", "{distlock}:fence", &(ahead + 1).to_string()]).unwrap();
        for locks in [&locks, &other] {
            let lease = locks.lock("k").wait(ms(1000)).acquire().await.unwrap();
            assert!(lease.fencing_token() > ahead && lease.fencing_token() > last);
            last = lease.fencing_token();
            lease.release().await.unwrap();
        }
    }
    servers[0].command(&["SET", "{distlock}:fence", "no number"]).unwrap();
    locks.lock("k").run(async |_| ()).await.unwrap();
    servers[1].command(&["SET", "{distlock}:fence", "no number"]).unwrap();
    let refused = locks.lock("k").acquire().await.unwrap_err().to_string();
    assert!(refused.contains("fencing counter"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn on_new_servers_the_first_number_is_good_enough() {
    let servers = servers(3);
    // A proposal is on its way for a while.
    for server in &servers {
        server.clock().step_forward(ms(500));
    }
    let locks = manager(&servers).await;
    // These servers live in 2025, which the client has to be told.
    locks.lock("warm").run(async |_| ()).await.unwrap();
    sleep(ms(1)).await;
    for server in &servers {
        server.command(&["DEL", "{distlock}:fence"]).unwrap();
        server.clear_log();
    }
    let lease = locks.lock("k").acquire().await.unwrap();
    comes_to_stand(&servers, "k", 3, ms(1)).await;
    for server in &servers {
        assert_eq!(server.log().iter().filter(|seen| seen.name() == "EVALSHA").count(), 1);
    }
    drop(lease);
}

#[tokio::test(start_paused = true)]
async fn several_keys_are_taken_on_a_majority_or_not_at_all() {
    let servers = servers(3);
    let (holder, locks) = (manager(&servers).await, manager(&servers).await);
    let held = holder.lock("b").ttl(ms(10_000)).acquire().await.unwrap();
    let LockError::Busy(busy) = locks.lock(["a", "b", "c"]).acquire().await.unwrap_err() else { panic!() };
    assert_eq!(busy.key(), "b");
    assert_eq!(stands(&servers, "a") + stands(&servers, "c"), 0);
    held.release().await.unwrap();
    let lease = locks.lock(["a", "b", "c"]).ttl(ms(1000)).acquire().await.unwrap();
    sleep(ms(3000)).await;
    assert!(lease.is_held());
    lease.release().await.unwrap();
    for key in ["a", "b", "c"] {
        comes_to_stand(&servers, key, 0, ms(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_goes_on_inside_the_process_under_a_new_fencing_token() {
    let servers = servers(3);
    let locks = manager(&servers).await;
    let mut tasks = Vec::new();
    for _ in 0..10 {
        let locks = locks.clone();
        tasks.push(tokio::spawn(async move {
            locks
                .lock("k")
                .wait(ms(60_000))
                .run(async |lease| {
                    tokio::task::yield_now().await;
                    lease.fencing_token()
                })
                .await
                .unwrap()
        }));
    }
    let mut tokens = Vec::new();
    for task in tasks {
        tokens.push(task.await.unwrap());
    }
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 10);
    comes_to_stand(&servers, "k", 0, ms(100)).await;
    let later = locks.lock("k").acquire().await.unwrap();
    assert!(later.fencing_token() > *tokens.last().unwrap());
}

#[tokio::test(start_paused = true)]
async fn settings_that_cannot_work_are_refused() {
    let build = |builder: distlock::Builder| async move { builder.build().await.unwrap_err() };
    let bad = [
        distlock::LockManager::builder().redlock(["redis://a"]).url("redis://b"),
        distlock::LockManager::builder().redlock(["redis://a", "redis://b", "redis://a"]),
        distlock::LockManager::builder().redlock(Vec::<String>::new()),
        distlock::LockManager::builder().redlock(["redis://a", "memory:", "redis://c"]),
        distlock::LockManager::builder().url("redlock:redis://a,redlock:redis://b"),
        distlock::LockManager::builder().url("redis://a").quarantine(true),
        distlock::LockManager::builder().url("memory:").quarantine(true),
        on(&servers(3)).quarantine(true).default_ttl(ms(11 * 60 * 1000)),
    ];
    for builder in bad {
        let error = build(builder).await;
        assert!(matches!(error, LockError::Config(_)), "{error}");
    }
    assert!(matches!(manager(&servers(3)).await.bootstrap().await, Err(LockError::Config(_))));
}

//! Waiting for a lock on several servers: told, not polled.

use distlock::LockError;
use distlock_testkit::{Fault, Match, Refusal};
use tokio::time::{Instant, sleep};

use crate::support::{Servers, VOTE, manager, ms, on, servers};

/// How many tokens stand in the lines of all servers.
fn queued(servers: &Servers, key: &str) -> usize {
    let line = format!("{{distlock:{key}}}:queue");
    servers.iter().map(|server| server.command(&["ZRANGE", &line, "0", "-1"]).unwrap().as_list().unwrap().len()).sum()
}

fn votes(servers: &Servers) -> usize {
    let of_one = |server: &std::sync::Arc<distlock_testkit::EmbeddedServer>| {
        server.log().iter().filter(|seen| seen.connection != 0 && seen.name().starts_with("EVAL")).count()
    };
    servers.iter().map(of_one).sum()
}

#[tokio::test(start_paused = true)]
async fn who_waits_is_told_and_asks_hardly_ever_in_the_meantime() {
    let servers = servers(3);
    let (holder, locks) = (manager(&servers).await, manager(&servers).await);
    let lease = holder.lock("k").ttl(ms(60_000)).acquire().await.unwrap();
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.lock("k").ttl(ms(60_000)).wait(ms(60_000)).acquire().await.unwrap() }
    });
    sleep(ms(200)).await;
    servers.iter().for_each(|server| server.clear_log());
    sleep(ms(12_000)).await;
    // A sign of life every three seconds.
    assert!(votes(&servers) <= 3 * 6, "{}", votes(&servers));
    let released_at = Instant::now();
    lease.release().await.unwrap();
    let lease = waiting.await.unwrap();
    assert!(released_at.elapsed() <= ms(2), "{:?}", released_at.elapsed());
    drop(lease);
    sleep(ms(10)).await;
    assert_eq!(queued(&servers, "k"), 0);
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_come_in_in_their_order_where_nothing_goes_wrong() {
    let servers = servers(3);
    let holder = manager(&servers).await;
    let lease = holder.lock("k").ttl(ms(60_000)).acquire().await.unwrap();
    let (told, mut order) = tokio::sync::mpsc::unbounded_channel();
    for number in 0..6 {
        let locks = manager(&servers).await;
        let told = told.clone();
        tokio::spawn(async move {
            let lease = locks.lock("k").ttl(ms(10_000)).wait(ms(60_000)).acquire().await.unwrap();
            told.send(number).unwrap();
            sleep(ms(50)).await;
            lease.release().await.unwrap();
        });
        sleep(ms(100)).await;
    }
    let released_at = Instant::now();
    lease.release().await.unwrap();
    for expected in 0..6 {
        assert_eq!(order.recv().await.unwrap(), expected);
    }
    assert!(released_at.elapsed() <= ms(6 * 50 + 20), "{:?}", released_at.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_gives_up_leaves_the_lines_and_the_next_is_told() {
    let servers = servers(3);
    let (holder, first, second) = (manager(&servers).await, manager(&servers).await, manager(&servers).await);
    let lease = holder.lock("k").ttl(ms(60_000)).acquire().await.unwrap();
    let waiter = |locks: &distlock::LockManager| {
        let locks = locks.clone();
        tokio::spawn(async move { locks.lock("k").ttl(ms(60_000)).wait(ms(60_000)).acquire().await.unwrap() })
    };
    let gives_up = waiter(&first);
    sleep(ms(200)).await;
    let stays = waiter(&second);
    sleep(ms(200)).await;
    assert_eq!(queued(&servers, "k"), 6);
    gives_up.abort();
    sleep(ms(10)).await;
    assert_eq!(queued(&servers, "k"), 3);
    let released_at = Instant::now();
    lease.release().await.unwrap();
    drop(stays.await.unwrap());
    assert!(released_at.elapsed() <= ms(2), "{:?}", released_at.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_waiter_stays_in_the_lines_while_a_server_without_the_lease_grants_it_again_and_again() {
    let servers = servers(3);
    let (holder, locks) = (manager(&servers).await, manager(&servers).await);
    for locks in [&holder, &locks] {
        locks.lock("warm").run(async |_| ()).await.unwrap();
    }
    let lease = holder.lock("k").ttl(ms(60_000)).acquire().await.unwrap();
    sleep(ms(1)).await;
    // The first to answer, so that each round of the waiter begins with a grant.
    servers[0].command(&["DEL", "distlock:k"]).unwrap();
    let waiting =
        tokio::spawn(async move { locks.lock("k").ttl(ms(60_000)).wait(ms(60_000)).acquire().await.unwrap() });
    sleep(ms(4200)).await;
    assert!(queued(&servers, "k") >= 2, "{}", queued(&servers, "k"));
    let released_at = Instant::now();
    lease.release().await.unwrap();
    drop(waiting.await.unwrap());
    assert!(released_at.elapsed() <= ms(3), "{:?}", released_at.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_dead_holder_is_succeeded_when_its_lease_ends_on_a_majority() {
    let servers = servers(3);
    let locks = manager(&servers).await;
    for (server, left) in servers.iter().zip(["1000", "2000", "3000"]) {
        let dead = "11111111-1111-4111-8111-111111111111 17 there/7 other::task 1735689600000000";
        server.command(&["SET", "distlock:k", dead, "PX", left]).unwrap();
    }
    let begun = Instant::now();
    let lease = locks.lock("k").ttl(ms(60_000)).wait(ms(60_000)).acquire().await.unwrap();
    assert!(begun.elapsed() >= ms(1999) && begun.elapsed() <= ms(2020), "{:?}", begun.elapsed());
    drop(lease);
}

#[tokio::test(start_paused = true)]
async fn where_no_server_tells_anything_it_looks_now_and_then() {
    let servers = servers(3);
    let (holder, locks) = (manager(&servers).await, manager(&servers).await);
    for server in &servers {
        server.inject(Match::every().command("SUBSCRIBE"), Fault::Refuse(Refusal::NoPerm));
    }
    let lease = holder.lock("k").ttl(ms(60_000)).acquire().await.unwrap();
    let waiting = tokio::spawn(async move { locks.lock("k").wait(ms(60_000)).acquire().await.unwrap() });
    sleep(ms(3000)).await;
    let released_at = Instant::now();
    lease.release().await.unwrap();
    drop(waiting.await.unwrap());
    assert!(released_at.elapsed() <= ms(260), "{:?}", released_at.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_the_majority_is_waited_through_and_said_to_be_one() {
    let servers = servers(3);
    let locks = on(&servers).build().await.unwrap();
    for server in &servers[..2] {
        server.inject(Match::every().script(VOTE), Fault::Refuse(Refusal::Loading));
    }
    let refused = locks.lock("k").wait(ms(1500)).acquire().await.unwrap_err();
    assert!(matches!(refused, LockError::NoQuorum(_)), "{refused}");
    let waiting = tokio::spawn(async move { locks.lock("k").wait(ms(20_000)).acquire().await.unwrap() });
    sleep(ms(5000)).await;
    servers[0].clear();
    let begun = Instant::now();
    drop(waiting.await.unwrap());
    assert!(begun.elapsed() <= ms(300), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_cannot_tell_anybody_anything_makes_nobody_ask_without_end() {
    let servers = servers(3);
    let (holder, locks) = (manager(&servers).await, manager(&servers).await);
    servers[0].inject(Match::every().command("SUBSCRIBE"), Fault::CutBefore);
    let lease = holder.lock("k").ttl(ms(60_000)).acquire().await.unwrap();
    let waiting =
        tokio::spawn(async move { locks.lock("k").ttl(ms(60_000)).wait(ms(60_000)).acquire().await.unwrap() });
    sleep(ms(500)).await;
    servers.iter().for_each(|server| server.clear_log());
    sleep(ms(10_000)).await;
    assert!(votes(&servers) < 100, "{}", votes(&servers));
    let released_at = Instant::now();
    lease.release().await.unwrap();
    drop(waiting.await.unwrap());
    assert!(released_at.elapsed() <= ms(5), "{:?}", released_at.elapsed());
}

#[tokio::test(start_paused = true)]
async fn what_dead_contenders_left_behind_is_not_asked_for_without_end() {
    let servers = servers(3);
    let locks = manager(&servers).await;
    for (server, owner) in servers.iter().zip(["1", "2"]) {
        let dead =
            format!("{}111111-1111-4111-8111-111111111111 17 there/7 other::task 1735689600000000", owner.repeat(2));
        server.command(&["SET", "distlock:k", &dead, "PX", "30000"]).unwrap();
    }
    let begun = Instant::now();
    let waiting =
        tokio::spawn(async move { locks.lock("k").ttl(ms(60_000)).wait(ms(60_000)).acquire().await.unwrap() });
    sleep(ms(10_000)).await;
    servers.iter().for_each(|server| server.clear_log());
    sleep(ms(15_000)).await;
    // A vote and its release on each server, every second or so.
    assert!(votes(&servers) <= 15 * 2 * 3 * 2, "{}", votes(&servers));
    drop(waiting.await.unwrap());
    assert!(begun.elapsed() <= ms(33_100), "{:?}", begun.elapsed());
}

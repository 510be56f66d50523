//! D8 against a server: pushed, in order, and with whatever happens to connections, permissions and processes.

use std::pin::Pin;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use distlock::{Lease, LockError, LockManager, Release};
use distlock_testkit::{Reply, Server, server_or_skip};
use tokio::task::JoinHandle;

use crate::support::{ask, companion, exists, manager, ms, nothing_is_left, queued, timed, until};

/// A message is far below this, and the next sign of life of a waiter with a ttl of 30 s far beyond.
const AT_ONCE: Duration = ms(1000);

const URL: &str = "DISTLOCK_TEST_HOLDER_URL";

#[derive(Clone, Default)]
struct Visits(Arc<Mutex<Vec<usize>>>);

/// Waits for the key as a process of its own, notes that it is in, and leaves.
fn visitor(locks: &LockManager, visits: &Visits, number: usize) -> JoinHandle<Result<(), LockError>> {
    let visits = visits.clone();
    tokio::spawn(
        locks.lock("k").ttl(ms(30_000)).wait(ms(60_000)).around(async move { visits.0.lock().unwrap().push(number) }),
    )
}

async fn managers(server: &Server, count: usize) -> Vec<LockManager> {
    let mut all = Vec::new();
    for _ in 0..count {
        all.push(manager(server).await);
    }
    all
}

type Call = Pin<Box<dyn Future<Output = Result<Lease, LockError>>>>;

/// A waiter that is polled by nobody any more once it stands in line.
async fn stopped_in_line(server: &Server, locks: &LockManager, place: i64) -> Call {
    let mut call: Call = Box::pin(locks.lock("k").ttl(ms(1000)).wait(ms(60_000)).acquire());
    tokio::select! {
        biased;
        _ = &mut call => panic!("it did not have to wait"),
        () = queued(server, "k", place) => {}
    }
    call
}

#[tokio::test]
async fn a_released_key_is_taken_at_once_although_the_waiter_s_timer_is_seconds_away() {
    let server = server_or_skip!();
    let (holder, locks) = (manager(&server).await, manager(&server).await);
    for _ in 0..10 {
        let held = holder.lock("k").ttl(ms(30_000)).acquire().await.unwrap();
        let waiting = tokio::spawn(locks.lock("k").ttl(ms(30_000)).wait(ms(60_000)).acquire());
        queued(&server, "k", 1).await;
        held.release().await.unwrap();
        let (lease, took) = timed(waiting).await;
        assert!(took < AT_ONCE, "{took:?}");
        lease.unwrap().unwrap().release().await.unwrap();
    }
    nothing_is_left(&server).await;
}

#[tokio::test]
async fn one_hand_over_costs_three_commands() {
    let server = server_or_skip!();
    let (holder, locks) = (manager(&server).await, manager(&server).await);
    // The first wait of a connection makes it listen.
    for round in 0..2 {
        let held = holder.lock("k").ttl(ms(30_000)).acquire().await.unwrap();
        let mut log = server.monitor().unwrap();
        let waiting = tokio::spawn(locks.lock("k").ttl(ms(30_000)).wait(ms(60_000)).acquire());
        queued(&server, "k", 1).await;
        held.release().await.unwrap();
        let lease = waiting.await.unwrap().unwrap();
        if round == 1 {
            let sent: Vec<_> = log.sent().unwrap().iter().map(|seen| seen.name()).collect();
            assert_eq!(sent, ["EVALSHA", "EVALSHA", "EVALSHA"]);
        }
        lease.release().await.unwrap();
    }
}

#[tokio::test]
async fn waiters_of_many_processes_come_in_in_the_order_in_which_they_came() {
    let server = server_or_skip!();
    let all = managers(&server, 9).await;
    for round in 0..4 {
        let visits = Visits::default();
        let held = all[8].lock("k").ttl(ms(30_000)).acquire().await.unwrap();
        let mut calls = Vec::new();
        let order: Vec<usize> = (0..8).map(|place| (place * 3 + round) % 8).collect();
        for (place, number) in (1..).zip(&order) {
            calls.push(visitor(&all[*number], &visits, *number));
            queued(&server, "k", place).await;
        }
        held.release().await.unwrap();
        let begun = Instant::now();
        for call in calls {
            call.await.unwrap().unwrap();
        }
        assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
        assert_eq!(*visits.0.lock().unwrap(), order);
    }
    nothing_is_left(&server).await;
}

#[tokio::test]
async fn nobody_overtakes_one_that_was_told_and_one_that_gives_up_passes_its_turn_on() {
    let server = server_or_skip!();
    let all = managers(&server, 4).await;
    let held = all[0].lock("k").ttl(ms(30_000)).acquire().await.unwrap();
    let told = stopped_in_line(&server, &all[1], 1).await;
    held.release().await.unwrap();
    let refused = all[2].lock("k").acquire().await;
    let LockError::Busy(busy) = refused.unwrap_err() else { panic!() };
    assert!(busy.holder().is_none());
    let visits = Visits::default();
    let next = visitor(&all[3], &visits, 3);
    queued(&server, "k", 2).await;
    drop(told);
    let (done, took) = timed(next).await;
    done.unwrap().unwrap();
    assert!(took < ms(450), "{took:?}: its turn was not passed on");
    nothing_is_left(&server).await;
}

/// Five processes that were stopped with their sockets open, a turn of 500 ms each, in entries that live for 2 s.
#[tokio::test]
async fn five_stopped_processes_ahead_cost_the_life_of_one_entry_together() {
    let server = server_or_skip!();
    let all = managers(&server, 7).await;
    let held = all[0].lock("k").ttl(ms(30_000)).acquire().await.unwrap();
    let mut stopped = Vec::new();
    for (place, locks) in (1..).zip(&all[2..]) {
        stopped.push(stopped_in_line(&server, locks, place).await);
    }
    let waiting = tokio::spawn(all[1].lock("k").ttl(ms(1000)).wait(ms(60_000)).around(async {}));
    queued(&server, "k", 6).await;
    held.release().await.unwrap();
    let (done, took) = timed(waiting).await;
    done.unwrap().unwrap();
    assert!(took <= ms(2300), "{took:?}");
    drop(stopped);
    nothing_is_left(&server).await;
}

#[tokio::test]
async fn waiters_that_gave_up_leave_no_entry() {
    let server = server_or_skip!();
    let all = managers(&server, 3).await;
    let held = all[0].lock("k").ttl(ms(30_000)).acquire().await.unwrap();
    for _ in 0..20 {
        let dropped = tokio::spawn(all[1].lock("k").wait(ms(60_000)).around(async {}));
        queued(&server, "k", 1).await;
        dropped.abort();
        queued(&server, "k", 0).await;
    }
    assert!(all[2].lock("k").wait(ms(300)).acquire().await.unwrap_err().is_busy());
    queued(&server, "k", 0).await;
    assert_eq!(held.release().await.unwrap(), Release::Released);
    nothing_is_left(&server).await;
}

#[tokio::test]
async fn waiters_listen_again_after_a_loss_of_connection_scripts_or_server() {
    let server = server_or_skip!();
    type Trouble = fn(&Server);
    let troubles: [(&str, Trouble); 4] = [
        ("normal", |server| drop(ask(server, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]))),
        ("pubsub", |server| drop(ask(server, &["CLIENT", "KILL", "TYPE", "pubsub", "SKIPME", "yes"]))),
        ("scripts", |server| drop(ask(server, &["SCRIPT", "FLUSH"]))),
        ("restart", |server| server.restart_with_data().unwrap()),
    ];
    for (what, trouble) in troubles {
        let all = managers(&server, 4).await;
        let held = all[0].lock("k").ttl(ms(30_000)).acquire().await.unwrap();
        let visits = Visits::default();
        let mut calls = Vec::new();
        for (place, number) in (1..).zip(1..4) {
            calls.push(visitor(&all[number], &visits, number));
            queued(&server, "k", place).await;
        }
        trouble(&server);
        // They come back by themselves, long before their next sign of life is due.
        let listeners = || {
            let channels = ask(&server, &["PUBSUB", "CHANNELS", "distlock:turn:*"]);
            channels.as_list().map_or(0, <[Reply]>::len)
        };
        until("they listen again", ms(2500), || listeners() == 3).await;
        queued(&server, "k", 3).await;
        let _ = held.release().await;
        let begun = Instant::now();
        for call in calls {
            call.await.unwrap().unwrap();
        }
        assert!(begun.elapsed() < AT_ONCE, "{what}: {:?}", begun.elapsed());
        assert_eq!(*visits.0.lock().unwrap(), [1, 2, 3], "{what}");
        drop(all);
        nothing_is_left(&server).await;
    }
}

#[tokio::test]
async fn where_listening_or_telling_is_refused_waiters_look_by_themselves_in_their_order() {
    let server = server_or_skip!();
    // Without SUBSCRIBE they look every quarter of a second; without PUBLISH with their next sign of life, within 500 ms
    // for this ttl.
    for (refused, longest) in [("-subscribe", ms(4 * 350)), ("-publish", ms(4 * 650)), ("resetchannels", ms(4 * 350))] {
        let user = format!("app{}", refused.trim_start_matches('-'));
        ask(&server, &["ACL", "SETUSER", &user, "on", ">p", "~*", "&*", "+@all", refused]);
        let url = format!("redis://{user}:p@127.0.0.1:{}", server.port());
        let mut all = Vec::new();
        for _ in 0..5 {
            all.push(LockManager::connect(&url).await.unwrap());
        }
        let held = all[0].lock("k").ttl(ms(1000)).acquire().await.unwrap();
        let visits = Visits::default();
        let mut calls = Vec::new();
        for (place, number) in (1..).zip(1..5) {
            let visits = visits.clone();
            let body = async move { visits.0.lock().unwrap().push(number) };
            calls.push(tokio::spawn(all[number].lock("k").ttl(ms(1000)).wait(ms(60_000)).around(body)));
            queued(&server, "k", place).await;
        }
        held.release().await.unwrap();
        let begun = Instant::now();
        for call in calls {
            call.await.unwrap().unwrap();
        }
        assert_eq!(*visits.0.lock().unwrap(), [1, 2, 3, 4], "{refused}");
        assert!(begun.elapsed() < longest, "{refused}: {:?}", begun.elapsed());
        nothing_is_left(&server).await;
    }
}

#[tokio::test]
async fn a_killed_holder_is_followed_within_its_ttl_at_little_cost() {
    let server = server_or_skip!();
    let mut holder = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "waiting::holder", "--nocapture"])
        .env(URL, server.url())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    until("the other process holds the key", ms(5000), || exists(&server, "distlock:k")).await;
    let locks = manager(&server).await;
    let mut log = server.monitor().unwrap();
    let waiting = tokio::spawn(locks.lock("k").ttl(ms(2000)).wait(ms(20_000)).acquire());
    queued(&server, "k", 1).await;
    holder.kill().unwrap();
    holder.wait().unwrap();
    let (lease, took) = timed(waiting).await;
    assert!(took <= ms(2000 + 250), "{took:?}");
    let pid = format!("/{}", std::process::id());
    let asked = log.sent().unwrap().iter().filter(|seen| seen.parts.iter().any(|part| part.contains(&pid))).count();
    assert!((1..20).contains(&asked), "{asked} commands while it waited");
    lease.unwrap().unwrap().release().await.unwrap();
    nothing_is_left(&server).await;
}

/// Not a test of its own: a process that takes the key and never lets go.
#[tokio::test]
async fn holder() {
    let Ok(url) = std::env::var(URL) else { return };
    let locks = LockManager::connect(url).await.unwrap();
    locks.lock("k").ttl(ms(2000)).run(async |_| std::future::pending::<()>().await).await.unwrap();
}

#[tokio::test]
async fn strangers_in_the_line_and_at_the_channel_grant_nothing_and_keep_no_lock() {
    let server = server_or_skip!();
    let (holder, locks) = (manager(&server).await, manager(&server).await);
    let waiter = || tokio::spawn(locks.lock("k").ttl(ms(1000)).wait(ms(60_000)).acquire());
    // Messages.
    let held = holder.lock("k").ttl(ms(30_000)).acquire().await.unwrap();
    let waiting = waiter();
    queued(&server, "k", 1).await;
    let Reply::List(channels) = ask(&server, &["PUBSUB", "CHANNELS", "distlock:turn:*"]) else { panic!() };
    assert_eq!(channels.len(), 1);
    let channel = channels[0].as_text().unwrap().to_owned();
    for message in ["distlock:k", "", "nonsense", &"x".repeat(50_000)] {
        for _ in 0..50 {
            assert_eq!(ask(&server, &["PUBLISH", &channel, message]).as_int(), Some(1));
        }
    }
    assert!(!waiting.is_finished() && held.is_held());
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    // Entries.
    let far = i64::MAX / 1000;
    for (score, entry) in [("-inf", ""), ("0", "x y z"), ("1", "0 0 a"), ("inf", "x"), ("1e300", &format!("{far} 0 a"))]
    {
        let held = holder.lock("k").ttl(ms(30_000)).acquire().await.unwrap();
        ask(&server, &["ZADD", &companion("k", "queue"), score, "garbage"]);
        ask(&server, &["HSET", &companion("k", "waiters"), "garbage", entry]);
        let waiting = waiter();
        until("it waits", ms(2000), || {
            let queue = ask(&server, &["ZRANGE", &companion("k", "queue"), "0", "-1"]);
            queue.as_list().unwrap().iter().any(|token| token.as_text() != Some("garbage"))
        })
        .await;
        held.release().await.unwrap();
        let (lease, took) = timed(waiting).await;
        assert!(took < ms(400), "{score}: {took:?}");
        lease.unwrap().unwrap().release().await.unwrap();
    }
    // Types.
    for kind in ["queue", "waiters"] {
        let held = holder.lock("k").ttl(ms(30_000)).acquire().await.unwrap();
        let name = companion("k", kind);
        ask(&server, &["SET", &name, "x"]);
        let error = locks.lock("k").ttl(ms(1000)).wait(ms(3000)).acquire().await.unwrap_err();
        assert!(error.to_string().contains("WRONGTYPE"), "{error}");
        assert_eq!(held.release().await.unwrap(), Release::Released);
        assert!(!exists(&server, "distlock:k"));
        ask(&server, &["DEL", &name]);
        locks.lock("k").wait(ms(5000)).acquire().await.unwrap().release().await.unwrap();
    }
    nothing_is_left(&server).await;
}

#[tokio::test]
async fn a_server_without_memory_still_lets_go_and_tells_the_next_one() {
    let server = server_or_skip!();
    let (holder, locks) = (manager(&server).await, manager(&server).await);
    let held = holder.lock("k").ttl(ms(30_000)).acquire().await.unwrap();
    let waiting = tokio::spawn(locks.lock("k").ttl(ms(1000)).wait(ms(60_000)).acquire());
    queued(&server, "k", 1).await;
    ask(&server, &["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(held.release().await.unwrap(), Release::Released);
    assert!(!exists(&server, "distlock:k"));
    tokio::time::sleep(ms(300)).await;
    assert!(!waiting.is_finished());
    ask(&server, &["CONFIG", "SET", "maxmemory", "0"]);
    let (lease, took) = timed(waiting).await;
    assert!(took < ms(1000), "{took:?}");
    lease.unwrap().unwrap().release().await.unwrap();
    nothing_is_left(&server).await;
}

//! D8: waiting is pushed, in order, and does not hang on a message, a connection or a process.

use std::sync::{Arc, Mutex};

use distlock::{LockError, LockManager};
use distlock_testkit::{Fault, Match, Refusal, Reply};
use tokio::io::AsyncWriteExt as _;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::support::{
    ACQUIRE, BoxedCall, Node, RELEASE, companion, gone_within, line, manager, ms, node, nothing_is_left, queued,
    stopped_in_line, waiters,
};

/// Who was in, in order, and when.
#[derive(Clone, Default)]
struct Visits(Arc<Mutex<Vec<(usize, Instant)>>>);

impl Visits {
    fn order(&self) -> Vec<usize> {
        self.0.lock().unwrap().iter().map(|(number, _)| *number).collect()
    }

    /// How long after `since` each one came in.
    fn delays(&self, since: Instant) -> Vec<std::time::Duration> {
        self.0.lock().unwrap().iter().map(|(_, at)| *at - since).collect()
    }
}

/// Waits for the key as a process of its own, notes that it is in, and leaves after a moment.
fn visitor(locks: &LockManager, visits: &Visits, number: usize) -> JoinHandle<Result<(), LockError>> {
    let visits = visits.clone();
    tokio::spawn(locks.lock("k").ttl(ms(1000)).wait(ms(60_000)).around(async move {
        visits.0.lock().unwrap().push((number, Instant::now()));
        sleep(ms(5)).await;
    }))
}

async fn managers(node: &Node, count: usize) -> Vec<LockManager> {
    let mut all = Vec::new();
    for _ in 0..count {
        all.push(manager(node).await);
    }
    all
}

/// A waiter that is polled by nobody once it stands in line.
fn frozen(locks: &LockManager) -> BoxedCall<Result<distlock::Lease, LockError>> {
    Box::pin(locks.lock("k").ttl(ms(1000)).wait(ms(60_000)).acquire())
}

#[tokio::test(start_paused = true)]
async fn a_released_key_is_taken_at_once_although_the_waiter_s_timer_is_seconds_away() {
    let node = node();
    let (holder, locks) = (manager(&node).await, manager(&node).await);
    for _ in 0..10 {
        let held = holder.lock("k").ttl(ms(30_000)).acquire().await.unwrap();
        let waiting = tokio::spawn(locks.lock("k").ttl(ms(30_000)).wait(ms(60_000)).acquire());
        queued(&node, "k", 1).await;
        sleep(ms(100)).await;
        let released = Instant::now();
        held.release().await.unwrap();
        let lease = waiting.await.unwrap().unwrap();
        assert!(released.elapsed() < ms(1), "{:?}", released.elapsed());
        assert_eq!(waiters(&node, "k"), 0);
        lease.release().await.unwrap();
    }
    nothing_is_left(&node).await;
}

/// Somebody listens at the other end, so the server thinks that the waiter was told.
#[tokio::test(start_paused = true)]
async fn with_its_messages_lost_a_waiter_still_comes_in_with_its_next_sign_of_life() {
    let node = node();
    let (holder, locks) = (manager(&node).await, manager(&node).await);
    let mut elsewhere = node.connect();
    elsewhere.write_all(b"SUBSCRIBE elsewhere\r\n").await.unwrap();
    let held = holder.lock("k").ttl(ms(30_000)).acquire().await.unwrap();
    let waiting = tokio::spawn(locks.lock("k").ttl(ms(30_000)).wait(ms(60_000)).acquire());
    queued(&node, "k", 1).await;
    let token = line(&node, "k").remove(0);
    let entry = format!("{} 0 elsewhere", i64::MAX / 1000);
    node.command(&["HSET", &companion("k", "waiters"), &token, &entry]).unwrap();
    let released = Instant::now();
    held.release().await.unwrap();
    let lease = waiting.await.unwrap().unwrap();
    let took = released.elapsed();
    assert!(took > ms(100) && took <= ms(3010), "{took:?}");
    lease.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn waiters_of_many_processes_come_in_in_the_order_in_which_they_came() {
    let node = node();
    let all = managers(&node, 9).await;
    for round in 0..5 {
        let visits = Visits::default();
        let held = all[8].lock("k").acquire().await.unwrap();
        let mut calls = Vec::new();
        // Not the order in which they connected.
        let order: Vec<usize> = (0..8).map(|place| (place * 3 + round) % 8).collect();
        for (place, number) in order.iter().enumerate() {
            calls.push(visitor(&all[*number], &visits, *number));
            queued(&node, "k", place + 1).await;
        }
        // Longer than the entries live without a sign of life.
        sleep(ms(5000)).await;
        let released = Instant::now();
        held.release().await.unwrap();
        for call in calls {
            call.await.unwrap().unwrap();
        }
        assert_eq!(visits.order(), order);
        let last = visits.delays(released).pop().unwrap();
        assert!(last < ms(7 * 5 + 20), "the last of eight came in after {last:?}");
    }
    nothing_is_left(&node).await;
}

#[tokio::test(start_paused = true)]
async fn neither_a_newcomer_nor_a_single_try_overtakes_one_that_is_on_its_way_in() {
    let node = node();
    let all = managers(&node, 4).await;
    let visits = Visits::default();
    let held = all[0].lock("k").acquire().await.unwrap();
    let first = visitor(&all[1], &visits, 1);
    queued(&node, "k", 1).await;
    // The first in line is told at once, and its question is on its way for a while.
    let slow = node.inject(Match::nth(1).script(ACQUIRE), Fault::DelayCommand(ms(200)));
    held.release().await.unwrap();
    slow_is_under_way(&slow).await;
    assert_eq!(node.command(&["EXISTS", "distlock:k"]).unwrap(), Reply::Int(0));
    let newcomer = visitor(&all[2], &visits, 2);
    queued(&node, "k", 2).await;
    let LockError::Busy(busy) = all[3].lock("k").acquire().await.unwrap_err() else { panic!() };
    assert!(busy.holder().is_none() && busy.retry_after().unwrap() <= ms(500), "{busy:?}");
    assert!(all[3].lock("k").try_acquire().await.unwrap().is_none());
    assert!(visits.order().is_empty());
    first.await.unwrap().unwrap();
    newcomer.await.unwrap().unwrap();
    assert_eq!(visits.order(), [1, 2]);
}

async fn slow_is_under_way(slow: &distlock_testkit::Injected) {
    slow.struck().await;
    sleep(ms(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_gave_up_leaves_no_entry_and_holds_nobody_up() {
    let node = node();
    let all = managers(&node, 3).await;
    let held = all[0].lock("k").ttl(ms(30_000)).acquire().await.unwrap();
    // Dropped.
    let dropped = tokio::spawn(all[1].lock("k").wait(ms(60_000)).around(async {}));
    queued(&node, "k", 1).await;
    dropped.abort();
    queued(&node, "k", 0).await;
    // Its budget is over.
    let refused = all[1].lock("k").wait(ms(700)).acquire().await.unwrap_err();
    assert!(refused.is_busy());
    queued(&node, "k", 0).await;
    // In front of somebody else.
    let dropped = tokio::spawn(all[1].lock("k").wait(ms(60_000)).around(async {}));
    queued(&node, "k", 1).await;
    let patient = tokio::spawn(all[2].lock("k").wait(ms(60_000)).around(async {}));
    queued(&node, "k", 2).await;
    dropped.abort();
    queued(&node, "k", 1).await;
    let released = Instant::now();
    held.release().await.unwrap();
    patient.await.unwrap().unwrap();
    assert!(released.elapsed() < ms(1), "{:?}", released.elapsed());
    assert_eq!(waiters(&node, "k"), 0);
    nothing_is_left(&node).await;
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_gives_up_when_it_was_told_of_its_turn_passes_it_on_at_once() {
    let node = node();
    let all = managers(&node, 3).await;
    for late in [0, 300] {
        let held = all[0].lock("k").ttl(ms(30_000)).acquire().await.unwrap();
        let mut told = frozen(&all[1]);
        stopped_in_line(&node, "k", 1, &mut told).await;
        let next = tokio::spawn(all[2].lock("k").ttl(ms(30_000)).wait(ms(60_000)).around(async {}));
        queued(&node, "k", 2).await;
        held.release().await.unwrap();
        sleep(ms(late)).await;
        assert!(!next.is_finished(), "it overtook one that is live");
        let dropped = Instant::now();
        drop(told);
        next.await.unwrap().unwrap();
        assert!(dropped.elapsed() < ms(1), "{:?}", dropped.elapsed());
        assert_eq!(waiters(&node, "k"), 0);
    }
    nothing_is_left(&node).await;
}

#[tokio::test(start_paused = true)]
async fn entries_at_whose_channel_nobody_listens_cost_nothing() {
    let node = node();
    let all = managers(&node, 2).await;
    let held = all[0].lock("k").ttl(ms(30_000)).acquire().await.unwrap();
    for number in 1..=5 {
        let (token, life) = (format!("ghost-{number}"), i64::MAX / 1000);
        node.command(&["ZADD", &companion("k", "queue"), &number.to_string(), &token]).unwrap();
        let entry = format!("{life} 0 distlock:turn:ghost-{number}");
        node.command(&["HSET", &companion("k", "waiters"), &token, &entry]).unwrap();
    }
    let waiting = tokio::spawn(all[1].lock("k").ttl(ms(30_000)).wait(ms(60_000)).around(async {}));
    queued(&node, "k", 6).await;
    let released = Instant::now();
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap();
    assert!(released.elapsed() < ms(1), "{:?}", released.elapsed());
    assert_eq!(waiters(&node, "k"), 0);
}

/// A ttl of one second: a sign of life every 500 ms, and an entry lives for three of them and the response time-out.
#[tokio::test(start_paused = true)]
async fn frozen_processes_ahead_cost_a_turn_each_and_one_entry_s_life_together() {
    for (count, at_least, at_most) in [(1, 490, 520), (2, 990, 1030), (5, 1000, 2050), (20, 1000, 2050)] {
        let node = node();
        let all = managers(&node, count + 2).await;
        let held = all[0].lock("k").ttl(ms(30_000)).acquire().await.unwrap();
        let mut stopped: Vec<_> = all[2..].iter().map(frozen).collect();
        for (place, call) in stopped.iter_mut().enumerate() {
            stopped_in_line(&node, "k", place + 1, call).await;
        }
        let waiting = tokio::spawn(all[1].lock("k").ttl(ms(1000)).wait(ms(60_000)).around(async {}));
        queued(&node, "k", count + 1).await;
        let released = Instant::now();
        held.release().await.unwrap();
        waiting.await.unwrap().unwrap();
        let took = released.elapsed();
        assert!(took >= ms(at_least) && took <= ms(at_most), "{took:?} behind {count} frozen ones");
        drop(stopped);
        nothing_is_left(&node).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_was_frozen_beyond_its_turn_keeps_its_place() {
    let node = node();
    let all = managers(&node, 4).await;
    let held = all[0].lock("k").ttl(ms(30_000)).acquire().await.unwrap();
    let mut stopped = frozen(&all[1]);
    stopped_in_line(&node, "k", 1, &mut stopped).await;
    let second = tokio::spawn(all[2].lock("k").ttl(ms(1000)).wait(ms(60_000)).acquire());
    queued(&node, "k", 2).await;
    let visits = Visits::default();
    let third = visitor(&all[3], &visits, 3);
    queued(&node, "k", 3).await;
    held.release().await.unwrap();
    // The turn of the first one is over, and its entry is gone.
    let lease = second.await.unwrap().unwrap();
    assert_eq!(waiters(&node, "k"), 1);
    // It goes on: where it was, before the third.
    let going_on = visits.clone();
    let first = tokio::task::LocalSet::new();
    let first = first.run_until(async move {
        let first = tokio::task::spawn_local(async move {
            let lease = stopped.await.unwrap();
            going_on.0.lock().unwrap().push((1, Instant::now()));
            lease.release().await.unwrap();
        });
        queued(&node, "k", 2).await;
        lease.release().await.unwrap();
        first.await.unwrap();
        third.await.unwrap().unwrap();
    });
    first.await;
    assert_eq!(visits.order(), [1, 3]);
}

#[tokio::test(start_paused = true)]
async fn waiters_whose_connections_were_cut_listen_again_and_keep_their_order() {
    type Trouble = fn(&Node);
    let troubles: [(&str, Trouble); 5] = [
        ("normal", |node| drop(node.command(&["CLIENT", "KILL", "TYPE", "normal"]).unwrap())),
        ("pubsub", |node| drop(node.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).unwrap())),
        ("scripts", |node| drop(node.command(&["SCRIPT", "FLUSH"]).unwrap())),
        ("restart", |node| node.restart(true)),
        ("outage", |node| node.stop()),
    ];
    for (what, trouble) in troubles {
        let node = node();
        let all = managers(&node, 4).await;
        let held = all[0].lock("k").ttl(ms(30_000)).acquire().await.unwrap();
        let visits = Visits::default();
        let mut calls = Vec::new();
        for (number, locks) in all.iter().enumerate().skip(1) {
            calls.push(visitor(locks, &visits, number));
            queued(&node, "k", number).await;
        }
        trouble(&node);
        if what == "outage" {
            sleep(ms(400)).await;
            node.start(true);
        }
        sleep(ms(1200)).await;
        assert_eq!(waiters(&node, "k"), 3, "{what}");
        let released = Instant::now();
        // On a connection that is cut it is not answered, and goes on in the background.
        let _ = held.release().await;
        for call in calls {
            call.await.unwrap().unwrap();
        }
        assert_eq!(visits.order(), [1, 2, 3], "{what}");
        let delays = visits.delays(released);
        assert!(delays[2] < ms(2 * 5 + 10), "{what}: {delays:?}: they are not told any more");
        nothing_is_left(&node).await;
    }
}

#[tokio::test(start_paused = true)]
async fn where_nobody_may_listen_waiters_look_by_themselves_and_keep_their_order() {
    let node = node();
    node.inject(Match::every().command("SUBSCRIBE"), Fault::Refuse(Refusal::NoPerm));
    let all = managers(&node, 5).await;
    let held = all[0].lock("k").ttl(ms(30_000)).acquire().await.unwrap();
    let visits = Visits::default();
    let mut calls = Vec::new();
    for (number, locks) in all.iter().enumerate().skip(1) {
        calls.push(visitor(locks, &visits, number));
        queued(&node, "k", number).await;
    }
    sleep(ms(5000)).await;
    let released = Instant::now();
    held.release().await.unwrap();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!(visits.order(), [1, 2, 3, 4]);
    let last = visits.delays(released).pop().unwrap();
    assert!(last <= ms(4 * 260), "{last:?}");
    nothing_is_left(&node).await;
}

/// The entry of the token that was given up stands at the waiter's own place, before or behind that of the new token.
#[tokio::test(start_paused = true)]
async fn a_token_that_was_given_up_holds_up_neither_its_waiter_nor_the_next_one() {
    for _ in 0..12 {
        let node = node();
        let all = managers(&node, 3).await;
        let held = all[0].lock("k").ttl(ms(30_000)).acquire().await.unwrap();
        let holder = node.command(&["GET", "distlock:k"]).unwrap().as_text().unwrap()[..36].to_owned();
        let visits = Visits::default();
        let first = visitor(&all[1], &visits, 1);
        queued(&node, "k", 1).await;
        let second = visitor(&all[2], &visits, 2);
        queued(&node, "k", 2).await;
        let old = line(&node, "k")[0].clone();
        // The first waiter is refused until it begins anew, and the end of its old token is not heard of.
        let released_by_others = {
            let old = old.clone();
            move |parts: &[String]| parts.contains(&old)
        };
        let unheard = node
            .inject(Match::every().script(RELEASE).when(released_by_others.clone()), Fault::Refuse(Refusal::Loading));
        let refused =
            node.inject(Match::every().script(ACQUIRE).when(released_by_others), Fault::Refuse(Refusal::Loading));
        sleep(ms(1500)).await;
        assert!(unheard.hits() > 0 && refused.hits() >= 2);
        assert_ne!(holder, old);
        assert!(line(&node, "k").contains(&old) && waiters(&node, "k") == 3, "{:?}", line(&node, "k"));
        let released = Instant::now();
        held.release().await.unwrap();
        first.await.unwrap().unwrap();
        second.await.unwrap().unwrap();
        assert_eq!(visits.order(), [1, 2]);
        let delays = visits.delays(released);
        assert!(delays[1] < ms(5 + 5), "{delays:?}");
        nothing_is_left(&node).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_holder_is_followed_within_its_ttl_at_little_cost() {
    for ttl in [500, 3000, 10_000, 30_000] {
        let node = node();
        let locks = manager(&node).await;
        let value = format!("{} 7 elsewhere/1 dead 1", "d".repeat(36));
        node.command(&["SET", "distlock:k", &value, "PX", &ttl.to_string()]).unwrap();
        let begun = Instant::now();
        node.clear_log();
        let lease = locks.lock("k").ttl(ms(ttl)).wait(ms(60_000)).acquire().await.unwrap();
        assert!(begun.elapsed() >= ms(ttl) && begun.elapsed() <= ms(ttl + 20), "{:?}", begun.elapsed());
        let sent = node.log().len();
        assert!(sent < 20, "{sent} commands while it waited");
        lease.release().await.unwrap();
    }
}

/// The holder learns of it only at its next renewal, and the waiter from its timer.
#[tokio::test(start_paused = true)]
async fn a_key_that_somebody_else_deleted_goes_to_the_first_in_line() {
    let node = node();
    let all = managers(&node, 3).await;
    let held = all[0].lock("k").ttl(ms(3000)).acquire().await.unwrap();
    let visits = Visits::default();
    let calls = [visitor(&all[1], &visits, 1), visitor(&all[2], &visits, 2)];
    queued(&node, "k", 2).await;
    node.command(&["DEL", "distlock:k"]).unwrap();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    let mut order = visits.order();
    order.sort_unstable();
    assert_eq!(order, [1, 2]);
    drop(held);
    gone_within(&node, "k", ms(50)).await;
}

#[tokio::test(start_paused = true)]
async fn the_wait_is_over_when_its_budget_is_also_with_a_place_in_line() {
    let node = node();
    let all = managers(&node, 2).await;
    let _held = all[0].lock("k").ttl(ms(30_000)).acquire().await.unwrap();
    for wait in [10, 100, 499, 1700, 5000] {
        let begun = Instant::now();
        let call = timeout(ms(20_000), all[1].lock("k").ttl(ms(30_000)).wait(ms(wait)).acquire());
        let LockError::Busy(busy) = call.await.unwrap().unwrap_err() else { panic!() };
        assert!(begun.elapsed() >= ms(wait) && begun.elapsed() <= ms(wait + 20), "{wait}: {:?}", begun.elapsed());
        assert!(busy.holder().unwrap().function().contains("waiting.rs"));
        queued(&node, "k", 0).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_late_does_not_put_the_next_question_off() {
    let node = node();
    let locks = manager(&node).await;
    locks.lock("k").run(async |_| ()).await.unwrap();
    let value = format!("{} 7 elsewhere/1 dead 1", "d".repeat(36));
    for late in [100, 300, 450] {
        node.command(&["SET", "distlock:k", &value, "PX", "600"]).unwrap();
        let begun = Instant::now();
        // The first answer makes it listen, the second one gives it its place in line.
        let delayed = node.inject(Match::nth(2).script(ACQUIRE), Fault::DelayReply(ms(late)));
        let lease = locks.lock("k").ttl(ms(30_000)).wait(ms(60_000)).acquire().await.unwrap();
        assert_eq!(delayed.hits(), 1);
        assert!(begun.elapsed() <= ms(620), "{:?} with an answer {late} ms late", begun.elapsed());
        lease.release().await.unwrap();
        node.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).unwrap();
        sleep(ms(10)).await;
    }
}

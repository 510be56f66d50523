//! Many callers of one process at the same moment: what they ask may leave in one command, and each is treated as if it had
//! asked alone.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use distlock::{LockManager, Release};
use distlock_testkit::{Fault, Match, Refusal, Reply, dropped_after};
use tokio::time::{Instant, sleep};

use crate::support::{BoxedCall, Node, all_is_well, exists, manager, ms, node, queued, stopped_in_line};

const TAKE: &str = include_str!("../../distlock-runtime/src/store/redis/lua/take.lua");

const MANY: usize = 24;

fn key(number: usize) -> String {
    format!("k{number}")
}

fn taken(node: &Node) -> usize {
    (0..MANY).filter(|number| exists(node, &key(*number))).count()
}

/// All of these at the same moment, in one task; comes back when all are done.
async fn together<T>(calls: impl IntoIterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut calls: Vec<Pin<Box<_>>> = calls.into_iter().map(Box::pin).collect();
    let mut outputs: Vec<Option<T>> = calls.iter().map(|_| None).collect();
    poll_fn(|cx| {
        for (call, output) in calls.iter_mut().zip(&mut outputs) {
            if output.is_none()
                && let Poll::Ready(ready) = call.as_mut().poll(cx)
            {
                *output = Some(ready);
            }
        }
        if outputs.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    outputs.into_iter().flatten().collect()
}

fn crowd(
    locks: &LockManager,
) -> impl Iterator<Item = impl Future<Output = Result<distlock::Lease, distlock::LockError>>> {
    (0..MANY).map(|number| locks.lock(key(number)).ttl(ms(30_000)).wait(ms(5000)).acquire())
}

#[tokio::test(start_paused = true)]
async fn a_crowd_costs_a_few_commands_and_everybody_has_a_token_and_a_key_of_its_own() {
    let node = node();
    let locks = manager(&node).await;
    for _ in 0..3 {
        node.clear_log();
        let leases = together(crowd(&locks)).await;
        let mut tokens: Vec<_> = leases.iter().map(|lease| lease.as_ref().unwrap().fencing_token()).collect();
        tokens.sort_unstable();
        assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
        assert_eq!(taken(&node), MANY);
        let released = together(leases.into_iter().map(|lease| lease.unwrap().release())).await;
        assert!(released.into_iter().all(|release| release.unwrap() == Release::Released));
        assert_eq!(taken(&node), 0);
    }
    let sent = node.log().iter().filter(|seen| seen.connection != 0).count();
    assert!(sent <= MANY, "{sent} commands for {MANY} leases");
    // So that the server has something to do while others bring their requests.
    let log = node.log();
    let keys =
        log.iter().filter(|seen| seen.connection != 0).filter_map(|seen| seen.parts.get(2)?.parse::<usize>().ok());
    let most = keys.max();
    assert!(most.is_some_and(|keys| keys <= MANY / 2 * 3 + 1), "{most:?} KEYS in one command");
    all_is_well(&node, "k0", [locks]).await;
}

#[tokio::test(start_paused = true)]
async fn one_of_a_crowd_does_not_overtake_a_live_ticket_either() {
    let node = node();
    let (holder, stopped, locks) = (manager(&node).await, manager(&node).await, manager(&node).await);
    let last = key(MANY - 1);
    let held = holder.lock(&last).ttl(ms(30_000)).acquire().await.unwrap();
    let mut told: BoxedCall<_> = Box::pin(stopped.lock(&last).ttl(ms(1000)).wait(ms(60_000)).acquire());
    stopped_in_line(&node, &last, 1, &mut told).await;
    held.release().await.unwrap();
    assert_eq!(taken(&node), 0);
    let begun = Instant::now();
    let others = (0..MANY).map(|number| locks.lock(key(number)).ttl(ms(1000)).acquire());
    let leases = together(others).await;
    let (free, busy): (Vec<_>, Vec<_>) = leases.into_iter().partition(Result::is_ok);
    assert_eq!((free.len(), busy.len()), (MANY - 1, 1));
    assert!(busy.into_iter().next().unwrap().unwrap_err().is_busy());
    assert_eq!(begun.elapsed(), ms(0));
    told.await.unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_crowd_that_is_dropped_after_any_step_leaves_no_key() {
    let node = node();
    let locks = manager(&node).await;
    let mut polls = 0;
    loop {
        let calls = async {
            for lease in together(crowd(&locks)).await {
                lease.unwrap().release().await.unwrap();
            }
        };
        let finished = dropped_after(polls, calls).await;
        sleep(ms(50)).await;
        assert_eq!(taken(&node), 0, "after {polls} steps");
        if finished {
            break;
        }
        polls += 1;
    }
    assert!(polls >= 4, "only {polls} steps were tried");
    for number in 0..MANY {
        queued(&node, &key(number), 0).await;
    }
    all_is_well(&node, "k0", [locks]).await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_a_crowd_lost_is_asked_for_again_by_each() {
    for fault in [Fault::CutAfter, Fault::CutBefore, Fault::DropReply, Fault::DelayReply(ms(900))] {
        let node = node();
        let locks = manager(&node).await;
        let first = together(crowd(&locks)).await;
        drop(first);
        sleep(ms(10)).await;
        let lost = node.inject(Match::nth(1).script(TAKE), fault.clone());
        let leases = together(crowd(&locks)).await;
        assert_eq!(lost.hits(), 1, "{fault:?}");
        let mut tokens: Vec<_> = leases.iter().map(|lease| lease.as_ref().unwrap().fencing_token()).collect();
        tokens.sort_unstable();
        assert!(tokens.is_sorted_by(|a, b| a < b), "{fault:?}: {tokens:?}");
        together(leases.into_iter().map(|lease| lease.unwrap().release())).await;
        sleep(ms(2000)).await;
        assert_eq!(taken(&node), 0, "{fault:?}");
        node.clear();
        all_is_well(&node, "k0", [locks]).await;
    }
}

/// A script is refused as a whole when one of its keys is not for this user. That is nobody else's fault.
#[tokio::test(start_paused = true)]
async fn one_key_that_is_refused_takes_none_of_the_others_with_it() {
    let node = node();
    let locks = manager(&node).await;
    let bad = format!("distlock:{}", key(MANY - 1));
    let names_it = {
        let bad = bad.clone();
        move |parts: &[String]| parts.contains(&bad)
    };
    node.inject(Match::every().when(names_it), Fault::Refuse(Refusal::NoPerm));
    let leases = together(crowd(&locks)).await;
    let (good, refused): (Vec<_>, Vec<_>) = leases.into_iter().partition(Result::is_ok);
    assert_eq!((good.len(), refused.len()), (MANY - 1, 1), "{:?}", refused.first());
    let error = refused.into_iter().next().unwrap().unwrap_err();
    assert!(matches!(error, distlock::LockError::Permission(_)), "{error:?}");
    node.clear();
    // The same with the way back.
    let mut leases: Vec<_> = good.into_iter().map(Result::unwrap).collect();
    leases.push(locks.lock(key(MANY - 1)).ttl(ms(30_000)).acquire().await.unwrap());
    let names_it = move |parts: &[String]| parts.contains(&bad);
    node.inject(Match::every().when(names_it), Fault::Refuse(Refusal::NoPerm));
    let released = together(leases.into_iter().map(distlock::Lease::release)).await;
    let good = released.iter().filter(|release| matches!(release, Ok(Release::Released))).count();
    assert_eq!(good, MANY - 1, "{released:?}");
    node.clear();
    sleep(ms(1000)).await;
    assert_eq!(taken(&node), 0);
}

#[tokio::test(start_paused = true)]
async fn the_script_for_a_crowd_takes_no_key_with_a_line_a_holder_or_a_buried_token() {
    let node = node();
    let put = |parts: &[&str]| drop(node.command(parts).unwrap());
    put(&["SET", "b", "somebody", "PX", "5000"]);
    put(&["ZADD", "cq", "1", "somebody"]);
    put(&["SET", "dg", "", "PX", "5000"]);
    let keys = ["a", "aq", "ag", "b", "bq", "bg", "c", "cq", "cg", "d", "dq", "dg", "fence"];
    let mut command = [&["EVAL", TAKE, "13"], &keys[..], &["t1", "t2", "t3", "t4"]].concat();
    for _ in 0..4 {
        command.extend(["1000", "host/1 f"]);
    }
    let answer = node.command(&command).unwrap();
    let tokens: Vec<_> = answer.as_list().unwrap().iter().map(|token| token.as_int().unwrap()).collect();
    assert!(tokens[0] > 0 && tokens[1..] == [0, 0, 0], "{tokens:?}");
    let there = |key: &str| node.command(&["EXISTS", key]).unwrap() == Reply::Int(1);
    assert!(there("a") && !there("c") && !there("d"));
    // Once more: the key is its token's own, and is asked for by itself.
    let again = node.command(&command).unwrap();
    assert!(again.as_list().unwrap().iter().all(|token| token.as_int() == Some(0)), "{again:?}");
}

#[tokio::test(start_paused = true)]
async fn two_of_a_crowd_that_want_one_key_do_not_both_have_it() {
    let node = node();
    let keys = ["a", "aq", "ag1", "a", "aq", "ag2", "fence"];
    let both = [&["EVAL", TAKE, "7"], &keys[..], &["t1", "t2", "1000", "host/1 f"]].concat();
    let answer = node.command(&both).unwrap();
    let tokens: Vec<_> = answer.as_list().unwrap().iter().map(|token| token.as_int().unwrap()).collect();
    assert!(tokens[0] > 0 && tokens[1] == 0, "{tokens:?}");
    assert!(node.command(&["GET", "a"]).unwrap().as_text().unwrap().starts_with("t1 "));
}

#[tokio::test(start_paused = true)]
async fn fencing_tokens_of_a_crowd_rise_into_the_next_second() {
    let node = node();
    let mut last = 0;
    let mut take = |at: Duration| {
        // In one of the next seconds.
        let since_second = Duration::from_nanos(node.clock().now().subsec_nanos().into());
        node.clock().step_forward(Duration::from_secs(2) + at - since_second);
        let number = node.clock().now().as_micros();
        let keys = ["a", "aq", "ag", "b", "bq", "bg", "fence"];
        let alike = [&["EVAL", TAKE, "7"], &keys[..], &["t1", "t2", "1000", "host/1 f"]].concat();
        let first = node.command(&alike).unwrap().as_int().unwrap();
        assert!((number..number + 2).contains(&u128::try_from(first).unwrap()), "{first} at {number}");
        assert!(first > last, "{first} after {last}");
        let value = |key: &str| node.command(&["GET", key]).unwrap().as_text().unwrap().to_owned();
        for (key, token, number) in [("a", "t1", first), ("b", "t2", first + 1)] {
            assert!(value(key).starts_with(&format!("{token} {number} host/1 f ")), "{}", value(key));
        }
        last = first + 1;
        assert_eq!(value("fence"), last.to_string());
    };
    for micros in (999_995..1_000_000).chain(0..2).chain(99_998..100_001) {
        take(Duration::from_micros(micros));
    }
}

#[tokio::test(start_paused = true)]
async fn fencing_tokens_of_a_crowd_go_on_behind_a_counter_that_is_ahead_of_the_clock() {
    let node = node();
    let ahead: i64 = 8_000_000_000_000_000;
    node.command(&["SET", "fence", &ahead.to_string()]).unwrap();
    let keys = ["a", "aq", "ag", "b", "bq", "bg", "fence"];
    let alike = [&["EVAL", TAKE, "7"], &keys[..], &["t1", "t2", "1000", "host/1 f"]].concat();
    assert_eq!(node.command(&alike).unwrap(), Reply::Int(ahead + 1));
    assert_eq!(node.command(&["GET", "fence"]).unwrap().as_text(), Some("8000000000000002"));
}

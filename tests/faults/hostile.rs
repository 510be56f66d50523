//! D9 and D8: what others put where our line stands, or send where we listen. It grants nothing, breaks nothing that we
//! hold, and is said in words.

use distlock::{LockError, LockManager, Release};
use distlock_testkit::Reply;
use tokio::time::{Instant, sleep};

use crate::support::{Node, companion, line, manager, ms, node, nothing_is_left, queued};

/// Sends a message to everybody who listens for a turn, and tells how many there were.
fn shout(node: &Node, message: &str) -> i64 {
    let entries = node.command(&["HGETALL", &companion("k", "waiters")]).unwrap();
    let channels = entries.as_list().unwrap().iter().skip(1).step_by(2).filter_map(|entry| {
        let entry = entry.as_text()?;
        Some(entry.split(' ').nth(2)?.to_owned())
    });
    channels.map(|channel| node.command(&["PUBLISH", &channel, message]).unwrap().as_int().unwrap()).sum()
}

fn waiter(locks: &LockManager) -> tokio::task::JoinHandle<Result<distlock::Lease, LockError>> {
    tokio::spawn(locks.lock("k").ttl(ms(1000)).wait(ms(60_000)).acquire())
}

#[tokio::test(start_paused = true)]
async fn a_false_message_grants_nothing_and_costs_a_question() {
    let node = node();
    let (holder, locks) = (manager(&node).await, manager(&node).await);
    let held = holder.lock("k").ttl(ms(30_000)).acquire().await.unwrap();
    let waiting = waiter(&locks);
    queued(&node, "k", 1).await;
    node.clear_log();
    for message in ["distlock:k", "", "k", "distlock:other", "granted", "\u{0}\u{7f}", &"x".repeat(100_000)] {
        for _ in 0..20 {
            assert_eq!(shout(&node, message), 1);
            tokio::task::yield_now().await;
        }
        assert!(!waiting.is_finished());
    }
    sleep(ms(10)).await;
    let questions = node.log().iter().filter(|seen| seen.name() == "EVALSHA").count();
    assert!((1..=21).contains(&questions), "{questions} questions");
    assert!(!waiting.is_finished() && held.is_held());
    held.release().await.unwrap();
    let lease = waiting.await.unwrap().unwrap();
    // Late for its waiter, and for nobody here.
    assert_eq!(shout(&node, "distlock:k"), 0);
    lease.release().await.unwrap();
    nothing_is_left(&node).await;
}

#[tokio::test(start_paused = true)]
async fn garbage_in_the_line_is_passed_over() {
    let far = i64::MAX / 1000;
    let entries = [
        ("-inf", None),
        ("-1", Some(format!("{far} 0 nobody"))),
        ("0", Some(format!("{far} 0 nobody"))),
        ("0", Some(format!("{far} 7 nobody"))),
        ("1", Some("nonsense".to_owned())),
        ("2", Some(String::new())),
        ("3", Some(format!("-{far} 0 x"))),
        ("4", Some(format!("{far} 0"))),
        ("5", Some("0x10 0 x".to_owned())),
        ("1e300", None),
        ("inf", None),
        ("inf", Some(format!("{far} 0 nobody"))),
        ("9007199254740992", None),
    ];
    for (number, (score, entry)) in entries.iter().enumerate() {
        let node = node();
        let (holder, locks) = (manager(&node).await, manager(&node).await);
        let held = holder.lock("k").ttl(ms(30_000)).acquire().await.unwrap();
        node.command(&["ZADD", &companion("k", "queue"), score, "garbage"]).unwrap();
        if let Some(entry) = entry {
            node.command(&["HSET", &companion("k", "waiters"), "garbage", entry]).unwrap();
        }
        let waiting = waiter(&locks);
        sleep(ms(100)).await;
        assert!(!waiting.is_finished(), "{number}: {:?}", waiting.await);
        assert!(line(&node, "k").iter().any(|token| token != "garbage"), "{number}: it is not in line");
        let released = Instant::now();
        assert_eq!(held.release().await.unwrap(), Release::Released);
        let lease = waiting.await.unwrap().unwrap();
        assert!(released.elapsed() < ms(1), "{number}: {:?}", released.elapsed());
        assert_eq!(lease.release().await.unwrap(), Release::Released);
        // A name in the table of waiters that stands in no line is nobody's business.
        node.command(&["DEL", &companion("k", "queue"), &companion("k", "waiters")]).unwrap();
        nothing_is_left(&node).await;
    }
}

/// Somebody is in line with a channel to which everybody listens, or without one, for ever.
#[tokio::test(start_paused = true)]
async fn a_false_waiter_holds_the_line_up_no_longer_than_its_word_says() {
    let node = node();
    let (holder, locks) = (manager(&node).await, manager(&node).await);
    let held = holder.lock("k").ttl(ms(30_000)).acquire().await.unwrap();
    let soon = 1_000 + i64::try_from(node.clock().now().as_millis()).unwrap();
    node.command(&["ZADD", &companion("k", "queue"), "1", "false"]).unwrap();
    node.command(&["HSET", &companion("k", "waiters"), "false", &format!("{soon} 0 -")]).unwrap();
    let waiting = waiter(&locks);
    queued(&node, "k", 2).await;
    let released = Instant::now();
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    assert!(released.elapsed() > ms(800) && released.elapsed() < ms(1020), "{:?}", released.elapsed());
    nothing_is_left(&node).await;
}

#[tokio::test(start_paused = true)]
async fn companions_of_another_type_are_an_error_in_words_and_the_lock_itself_is_given_back() {
    for kind in ["queue", "waiters"] {
        for other in ["string", "list"] {
            let node = node();
            let (holder, locks) = (manager(&node).await, manager(&node).await);
            let held = holder.lock("k").ttl(ms(30_000)).acquire().await.unwrap();
            let name = companion("k", kind);
            let put = if other == "string" { ["SET", &name, "x"] } else { ["RPUSH", &name, "x"] };
            node.command(&put).unwrap();
            let error = locks.lock("k").ttl(ms(1000)).wait(ms(5000)).acquire().await.unwrap_err();
            assert!(!error.is_busy() && !error.is_lost(), "{kind} as {other}: {error:?}");
            assert!(error.to_string().contains("WRONGTYPE"), "{kind} as {other}: {error}");
            assert!(held.is_held());
            held.extend(ms(60_000)).await.unwrap();
            assert_eq!(held.release().await.unwrap(), Release::Released, "{kind} as {other}");
            assert_eq!(node.command(&["EXISTS", "distlock:k"]).unwrap(), Reply::Int(0));
            node.command(&["DEL", &name]).unwrap();
            // Mended, everything is as before.
            let held = holder.lock("k").ttl(ms(30_000)).wait(ms(3000)).acquire().await.unwrap();
            let waiting = waiter(&locks);
            queued(&node, "k", 1).await;
            held.release().await.unwrap();
            waiting.await.unwrap().unwrap().release().await.unwrap();
            nothing_is_left(&node).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_becomes_no_lock_while_somebody_waits_for_it_is_reported_and_stays() {
    for put in [&["SET", "distlock:k", "x"][..], &["RPUSH", "distlock:k", "x"]] {
        let node = node();
        let (holder, locks) = (manager(&node).await, manager(&node).await);
        let held = holder.lock("k").ttl(ms(30_000)).acquire().await.unwrap();
        let waiting = waiter(&locks);
        queued(&node, "k", 1).await;
        node.command(&["DEL", "distlock:k"]).unwrap();
        node.command(put).unwrap();
        let error = waiting.await.unwrap().unwrap_err();
        assert!(matches!(error, LockError::InvalidKey(_)), "{error:?}");
        queued(&node, "k", 0).await;
        assert_eq!(held.release().await.unwrap(), Release::AlreadyLost);
        assert_eq!(node.command(&["EXISTS", "distlock:k"]).unwrap(), Reply::Int(1));
        node.command(&["DEL", "distlock:k"]).unwrap();
        nothing_is_left(&node).await;
    }
}

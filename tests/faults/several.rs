//! D5 and D8: locks on several keys: all or nothing, in one step, without deadlock.

use std::sync::{Arc, Mutex};

use distlock::{LockError, LockManager, LossCause, Release};
use distlock_testkit::{Event, Fault, Match, Moment, check};
use tokio::time::{Instant, sleep};

use crate::support::{ACQUIRE, Node, exists, manager, ms, node, nothing_is_left, queued, waiters};

fn taken(node: &Node) -> Vec<&'static str> {
    ["a", "b", "c"].into_iter().filter(|key| exists(node, key)).collect()
}

#[tokio::test(start_paused = true)]
async fn all_keys_are_taken_in_one_command_in_their_order_and_given_back_in_one() {
    let node = node();
    let locks = manager(&node).await;
    locks.lock("a").run(async |_| ()).await.unwrap();
    node.clear_log();
    let lease = locks.lock(["c", "a", "b", "a", "c"]).ttl(ms(1000)).acquire().await.unwrap();
    assert_eq!(taken(&node), ["a", "b", "c"]);
    // What this test looks at directly has the number 0.
    let sent: Vec<_> = node.log().into_iter().filter(|seen| seen.connection != 0).collect();
    let [command] = sent.as_slice() else { panic!("{sent:?}") };
    let keys: Vec<_> = command.parts[3..].iter().filter(|part| part.starts_with("distlock:")).collect();
    assert_eq!(keys, ["distlock:a", "distlock:b", "distlock:c"]);
    sleep(ms(5000)).await;
    assert!(lease.is_held());
    assert_eq!(lease.release().await.unwrap(), Release::Released);
    assert!(taken(&node).is_empty());
    nothing_is_left(&node).await;
}

#[tokio::test(start_paused = true)]
async fn while_one_is_taken_none_is_and_the_error_names_it() {
    let node = node();
    let (holder, locks) = (manager(&node).await, manager(&node).await);
    for held_key in ["a", "b", "c"] {
        let held = holder.lock(held_key).ttl(ms(30_000)).acquire().await.unwrap();
        for wait in [0, 700] {
            let begun = Instant::now();
            let refused = locks.lock(["c", "b", "a"]).ttl(ms(1000)).wait(ms(wait)).acquire().await;
            let LockError::Busy(busy) = refused.unwrap_err() else { panic!() };
            assert_eq!(busy.key(), held_key);
            assert!(busy.holder().unwrap().function().contains("several.rs"));
            assert!(begun.elapsed() >= ms(wait) && begun.elapsed() <= ms(wait + 20), "{:?}", begun.elapsed());
            assert_eq!(taken(&node), [held_key]);
            for key in ["a", "b", "c"] {
                queued(&node, key, 0).await;
            }
        }
        held.release().await.unwrap();
    }
    nothing_is_left(&node).await;
}

#[tokio::test(start_paused = true)]
async fn a_waiter_for_several_comes_in_when_the_last_of_them_is_free() {
    let node = node();
    let (holder, locks) = (manager(&node).await, manager(&node).await);
    let (a, b) = (holder.lock("a").acquire().await.unwrap(), holder.lock("b").acquire().await.unwrap());
    let waiting = tokio::spawn(locks.lock(["a", "b", "c"]).ttl(ms(30_000)).wait(ms(60_000)).acquire());
    queued(&node, "b", 1).await;
    a.release().await.unwrap();
    sleep(ms(200)).await;
    assert_eq!(taken(&node), ["b"], "some were taken before all could be");
    let released = Instant::now();
    b.release().await.unwrap();
    let lease = waiting.await.unwrap().unwrap();
    assert!(released.elapsed() < ms(1), "{:?}", released.elapsed());
    assert_eq!(taken(&node), ["a", "b", "c"]);
    for key in ["a", "b", "c"] {
        assert_eq!(waiters(&node, key), 0);
    }
    lease.release().await.unwrap();
    nothing_is_left(&node).await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_leaves_no_part_behind_and_a_resend_recognises_all_of_them() {
    for fault in [Fault::DropReply, Fault::CutAfter, Fault::CutBefore, Fault::DelayCommand(ms(900))] {
        for wait in [0, 5000] {
            let node = node();
            let locks = manager(&node).await;
            node.inject(Match::nth(1).script(ACQUIRE), fault.clone());
            let got = locks.lock(["a", "b"]).ttl(ms(30_000)).wait(ms(wait)).acquire().await;
            node.clear();
            if let Ok(lease) = got {
                assert_eq!(taken(&node), ["a", "b"]);
                assert_eq!(lease.release().await.unwrap(), Release::Released);
            }
            sleep(ms(1500)).await;
            assert!(taken(&node).is_empty(), "{fault:?}");
            nothing_is_left(&node).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_key_that_goes_takes_the_lease_and_the_rest_is_given_back() {
    type Theft = fn(&Node);
    let thefts: [(Theft, LossCause, &[&str]); 2] = [
        (|node| drop(node.command(&["DEL", "distlock:b"]).unwrap()), LossCause::Deleted, &[]),
        (|node| drop(node.command(&["SET", "distlock:b", "thief", "PX", "9000"]).unwrap()), LossCause::Stolen, &["b"]),
    ];
    for (theft, cause, left) in thefts {
        let node = node();
        let locks = manager(&node).await;
        let lease = locks.lock(["c", "b", "a"]).ttl(ms(900)).acquire().await.unwrap();
        theft(&node);
        let begun = Instant::now();
        let lost = lease.lost().await;
        assert_eq!((lost.cause(), lost.key()), (cause, "b"));
        assert!(begun.elapsed() <= ms(310), "{:?}", begun.elapsed());
        assert!(!lease.is_held());
        sleep(ms(5)).await;
        assert_eq!(taken(&node), left);
        assert_eq!(lease.release().await.unwrap(), Release::AlreadyLost);
        sleep(ms(100)).await;
        assert_eq!(taken(&node), left);
    }
}

/// One of them may have gone to somebody else between a grant that was not heard of and the resend.
#[tokio::test(start_paused = true)]
async fn a_resend_that_finds_a_part_of_its_keys_gone_keeps_none_of_the_others() {
    let node = node();
    let locks = manager(&node).await;
    locks.lock("a").run(async |_| ()).await.unwrap();
    node.inject(Match::nth(1).script(ACQUIRE), Fault::CutAfter);
    // The way back takes a while.
    node.inject(Match::nth(1).command("HELLO"), Fault::DelayCommand(ms(300)));
    let call = tokio::spawn(locks.lock(["a", "b"]).ttl(ms(30_000)).wait(ms(60_000)).acquire());
    sleep(ms(100)).await;
    assert_eq!(taken(&node), ["a", "b"]);
    node.command(&["SET", "distlock:b", "thief", "PX", "3000"]).unwrap();
    sleep(ms(700)).await;
    assert_eq!(taken(&node), ["b"], "a part of the keys was kept");
    assert!(!call.is_finished());
    let lease = call.await.unwrap().unwrap();
    assert_eq!(taken(&node), ["a", "b"]);
    lease.release().await.unwrap();
    nothing_is_left(&node).await;
}

#[tokio::test(start_paused = true)]
async fn opposite_orders_and_single_keys_never_stand_in_each_other_s_way() {
    const CHOICES: [&[&str]; 6] = [&["a", "b"], &["b", "a"], &["a", "b", "c"], &["c", "a"], &["a"], &["b"]];
    let node = node();
    let begun = Instant::now();
    let now = move || Moment::from_nanos(u64::try_from(begun.elapsed().as_nanos()).unwrap());
    let events = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for process in 0..4 {
        let locks: LockManager = manager(&node).await;
        for (task, keys) in CHOICES.iter().enumerate() {
            let (locks, events, keys) = (locks.clone(), events.clone(), *keys);
            tasks.push(tokio::spawn(async move {
                let (mut held, mut busy) = (0, 0);
                for number in 0..60_u64 {
                    let name = format!("{process}.{task}.{number}");
                    // Every third call does not wait.
                    let wait = if number % 3 == 2 { ms(0) } else { ms(60_000) };
                    let body = async |lease: &distlock::Lease<distlock::Several>| {
                        let (at, valid_until) = (now(), now() + lease.remaining());
                        for (key, fencing) in lease.fencing_tokens() {
                            let (lease, process) = (format!("{name} {key}"), format!("{process}.{task}"));
                            let key = key.to_owned();
                            let granted = Event::Granted { lease, process, key, fencing, at, valid_until };
                            events.lock().unwrap().push(granted);
                        }
                        sleep(ms((number + task as u64) % 3) + std::time::Duration::from_micros(1)).await;
                        for key in keys {
                            let ended = Event::Ended { lease: format!("{name} {key}"), at: now() };
                            events.lock().unwrap().push(ended);
                        }
                    };
                    match locks.lock(keys).ttl(ms(1000)).wait(wait).run(body).await {
                        Ok(()) => held += 1,
                        Err(LockError::Busy(_)) if wait.is_zero() => busy += 1,
                        Err(error) => panic!("{keys:?}: {error:?}"),
                    }
                    sleep(ms(number % 2)).await;
                }
                (held, busy)
            }));
        }
    }
    let (mut held, mut busy) = (0, 0);
    for task in tasks {
        let (in_time, refused) = task.await.unwrap();
        held += in_time;
        busy += refused;
    }
    let report = check(&events.lock().unwrap().drain(..).collect());
    report.assert_clean();
    assert!(held >= 24 * 40 && held + busy == 24 * 60, "{held} holds, {busy} refused");
    // Nobody was kept waiting by something else than holds.
    assert!(begun.elapsed() < ms(30_000), "{:?}", begun.elapsed());
    nothing_is_left(&node).await;
}

#[tokio::test(start_paused = true)]
async fn overlapping_keys_inside_of_a_body_are_re_entrant_or_shared_and_never_waited_for() {
    let node = node();
    let locks = manager(&node).await;
    let inside = async |_: &distlock::Lease<distlock::Several>| {
        let begun = Instant::now();
        let refused = locks.lock(["z", "b"]).wait(ms(5000)).acquire().await.unwrap_err();
        assert!(matches!(refused, LockError::Reentrant(_)), "{refused:?}");
        let refused = locks.lock(["z", "b"]).reentrant(true).wait(ms(5000)).acquire().await.unwrap_err();
        assert!(matches!(refused, LockError::Reentrant(_)), "{refused:?}");
        // All of them are held already.
        let shared = locks.lock(["b", "a"]).reentrant(true).acquire().await.unwrap();
        drop(shared);
        assert_eq!(taken(&node), ["a", "b"]);
        assert_eq!(begun.elapsed(), ms(0));
        let other = locks.lock(["c", "d"]).acquire().await.unwrap();
        other.release().await.unwrap();
    };
    locks.lock(["a", "b"]).run(inside).await.unwrap();
    assert!(taken(&node).is_empty());
}

//! D8: a key that goes on inside the process, without the server: to whom, with what, and for how long.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock::{Lease, LockError, LockManager, LossCause, Renew};
use distlock_testkit::{Event, Fault, Match, Moment, check};
use tokio::time::{Instant, sleep};

use crate::support::{
    ACQUIRE, BoxedCall, Node, RELEASE, exists, gone_within, manager, ms, node, nothing_is_left, queued,
};

/// How long after its acquisition a key is handed on.
const CHAIN: Duration = ms(10);

type Call = BoxedCall<Result<Lease, LockError>>;

/// Runs the tasks that are ready until nothing is left to do without the clock.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// How many commands of this script the server has executed since the log was cleared.
fn sent(node: &Node, script: &str) -> usize {
    let sha = sha_of(node, script);
    node.log().iter().filter(|seen| seen.parts.get(1).is_some_and(|what| *what == sha || what == script)).count()
}

fn sha_of(node: &Node, script: &str) -> String {
    node.command(&["SCRIPT", "LOAD", script]).unwrap().as_text().unwrap().to_owned()
}

fn call(locks: &LockManager) -> Call {
    Box::pin(locks.lock("k").ttl(ms(1000)).wait(ms(60_000)).acquire())
}

/// A lease whose key may go on to `heir`, which waits in the same process and is not polled until then.
///
/// The first holder asks for one fencing token only, as nobody waits; the second one for more, as the heir does.
async fn before(locks: &LockManager, heir: &mut Call) -> Lease {
    before_with(locks, heir, |lock| lock.ttl(ms(1000))).await
}

async fn before_with(
    locks: &LockManager,
    heir: &mut Call,
    settings: impl FnOnce(distlock::Lock) -> distlock::Lock,
) -> Lease {
    let first = locks.lock("k").ttl(ms(1000)).acquire().await.unwrap();
    let second = tokio::spawn(settings(locks.lock("k").wait(ms(60_000))).acquire());
    settle().await;
    tokio::select! {
        biased;
        _ = heir => panic!("it did not have to wait"),
        () = settle() => {}
    }
    first.release().await.unwrap();
    second.await.unwrap().unwrap()
}

#[tokio::test(start_paused = true)]
async fn sixty_four_tasks_cost_the_server_a_few_commands_and_have_rising_tokens_of_their_own() {
    let node = node();
    let locks = manager(&node).await;
    let tokens = Arc::new(Mutex::new(Vec::new()));
    locks.lock("k").run(async |_| ()).await.unwrap();
    node.clear_log();
    let tasks: Vec<_> = (0..64)
        .map(|_| {
            let (locks, tokens) = (locks.clone(), tokens.clone());
            tokio::spawn(async move {
                let note = async |lease: &Lease| tokens.lock().unwrap().push(lease.fencing_token());
                locks.lock("k").ttl(ms(1000)).wait(ms(60_000)).run(note).await.unwrap();
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let (asked, released) = (sent(&node, ACQUIRE), sent(&node, RELEASE));
    assert!(asked + released <= 8, "{asked} questions and {released} releases for 64 holds");
    let tokens = tokens.lock().unwrap().clone();
    assert_eq!(tokens.len(), 64);
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    // What comes from the server next is above all of them.
    let last = locks.lock("k").run(async |lease| lease.fencing_token()).await.unwrap();
    assert!(last > tokens[63]);
    nothing_is_left(&node).await;
}

#[tokio::test(start_paused = true)]
async fn whoever_has_inherited_the_key_is_told_of_as_its_holder() {
    let node = node();
    let locks = manager(&node).await;
    let mut heir = call(&locks);
    let lease = before(&locks, &mut heir).await;
    let holder = async |locks: &LockManager| match locks.lock("k").acquire().await.unwrap_err() {
        LockError::Busy(busy) => (busy.holder().unwrap().function().to_owned(), busy.held_for().unwrap()),
        error => panic!("{error:?}"),
    };
    sleep(ms(5)).await;
    let (second, _) = holder(&locks).await;
    lease.release().await.unwrap();
    let inherited = heir.await.unwrap();
    let (third, held_for) = holder(&locks).await;
    assert_ne!(second, third);
    assert_eq!(held_for, ms(0), "it counts from its own beginning");
    inherited.release().await.unwrap();
}

/// Several processes with several tasks each, so that the key goes on both ways.
#[tokio::test(start_paused = true)]
async fn both_ways_of_going_on_together_let_nobody_in_beside_anybody() {
    for round in 0..6 {
        let node = node();
        let begun = Instant::now();
        let now = move || Moment::from_nanos(u64::try_from(begun.elapsed().as_nanos()).unwrap());
        let events = Arc::new(Mutex::new(Vec::new()));
        node.clear_log();
        let mut tasks = Vec::new();
        for process in 0..4_u64 {
            let locks = manager(&node).await;
            for task in 0..8_u64 {
                let (locks, events) = (locks.clone(), events.clone());
                tasks.push(tokio::spawn(async move {
                    for number in 0..10 {
                        let lease = format!("{process}.{task}.{number}");
                        let ttl = ms(300 + 100 * (task % 3));
                        let body = async |held: &Lease| {
                            let (at, valid_until) = (now(), now() + held.remaining());
                            let (key, fencing) = ("k".to_owned(), held.fencing_token());
                            let process = format!("{process}.{task}");
                            let granted =
                                Event::Granted { lease: lease.clone(), process, key, fencing, at, valid_until };
                            events.lock().unwrap().push(granted);
                            sleep(ms((task + number + round) % 4)).await;
                            events.lock().unwrap().push(Event::Ended { lease: lease.clone(), at: now() });
                        };
                        locks.lock("k").ttl(ttl).wait(ms(60_000)).run(body).await.unwrap();
                    }
                }));
            }
        }
        for task in tasks {
            task.await.unwrap();
        }
        let report = check(&events.lock().unwrap().drain(..).collect());
        report.assert_clean();
        assert_eq!((report.grants(), report.processes()), (320, 32));
        // Some went on inside of a process, and some did not.
        let released = sent(&node, RELEASE);
        assert!(released > 20 && released < 300, "{released} releases for 320 holds");
        nothing_is_left(&node).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_heir_that_is_not_polled_gives_the_key_back_when_the_chain_ends() {
    let node = node();
    let (locks, others) = (manager(&node).await, manager(&node).await);
    let mut heir = call(&locks);
    let lease = before(&locks, &mut heir).await;
    let acquired = Instant::now();
    let other = tokio::spawn(others.lock("k").ttl(ms(1000)).wait(ms(60_000)).acquire());
    queued(&node, "k", 1).await;
    lease.release().await.unwrap();
    settle().await;
    assert!(exists(&node, "k") && !other.is_finished(), "the key did not stay in the process");
    let other = other.await.unwrap().unwrap();
    assert!(acquired.elapsed() <= CHAIN + ms(1), "{:?}", acquired.elapsed());
    // Polled again, it finds the key taken, and waits like everybody.
    let begun = Instant::now();
    let freed = async {
        sleep(ms(50)).await;
        other.release().await.unwrap();
    };
    let (heir, ()) = tokio::join!(heir, freed);
    assert_eq!(begun.elapsed().as_millis(), 50);
    heir.unwrap().release().await.unwrap();
    nothing_is_left(&node).await;
}

#[tokio::test(start_paused = true)]
async fn an_heir_that_was_cancelled_is_passed_over_before_and_after_it_was_sent_the_key() {
    for sent_first in [false, true] {
        let node = node();
        let (locks, others) = (manager(&node).await, manager(&node).await);
        let mut cancelled = call(&locks);
        let lease = before(&locks, &mut cancelled).await;
        let next = tokio::spawn(locks.lock("k").ttl(ms(1000)).wait(ms(60_000)).acquire());
        settle().await;
        node.clear_log();
        if sent_first {
            lease.release().await.unwrap();
            drop(cancelled);
        } else {
            drop(cancelled);
            lease.release().await.unwrap();
        }
        let next = next.await.unwrap().unwrap();
        assert_eq!(sent(&node, RELEASE), 0, "it went on without the server");
        // The last one of all: nobody is left to hand it to.
        let mut last = call(&locks);
        tokio::select! {
            biased;
            _ = &mut last => panic!("it did not have to wait"),
            () = settle() => {}
        }
        next.release().await.unwrap();
        drop(last);
        gone_within(&node, "k", ms(0)).await;
        others.lock("k").acquire().await.unwrap().release().await.unwrap();
        nothing_is_left(&node).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_while_the_key_is_on_its_way_gives_it_back() {
    let node = node();
    let locks = manager(&node).await;
    let mut heir = call(&locks);
    let lease = before(&locks, &mut heir).await;
    lease.release().await.unwrap();
    settle().await;
    assert!(exists(&node, "k"));
    let done = locks.shutdown(ms(1000)).await;
    assert_eq!(done.left, 0);
    assert!(!exists(&node, "k"));
    assert!(matches!(heir.await.unwrap_err(), LockError::Closed(_)));
    nothing_is_left(&node).await;
}

#[tokio::test(start_paused = true)]
async fn a_manager_that_goes_while_the_key_is_on_its_way_leaves_nothing() {
    let node = node();
    let locks = manager(&node).await;
    let mut heir = call(&locks);
    let lease = before(&locks, &mut heir).await;
    lease.release().await.unwrap();
    settle().await;
    assert!(exists(&node, "k"));
    drop((heir, locks));
    gone_within(&node, "k", CHAIN).await;
    nothing_is_left(&node).await;
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0, "tasks are left");
}

#[tokio::test(start_paused = true)]
async fn an_heir_inherits_the_deadline_and_gets_its_own_with_its_own_renewals() {
    let node = node();
    let locks = manager(&node).await;
    for ttl in [100, 600, 1000, 1300] {
        let mut heir: Call = Box::pin(locks.lock("k").ttl(ms(ttl)).wait(ms(60_000)).acquire());
        let lease = before(&locks, &mut heir).await;
        sleep(ms(6)).await;
        let (left, token) = (lease.remaining(), lease.fencing_token());
        node.clear_log();
        lease.release().await.unwrap();
        let inherited = heir.await.unwrap();
        assert_eq!(sent(&node, RELEASE), 0, "ttl {ttl}: it went on without the server");
        assert_eq!((inherited.remaining(), inherited.fencing_token()), (left, token + 1), "ttl {ttl}");
        // Its own renewals make it live on, and give it its own ttl.
        sleep(ms(5000)).await;
        assert!(inherited.is_held() && inherited.remaining() <= ms(ttl.max(1000)), "ttl {ttl}");
        assert!(inherited.remaining() >= ms(ttl / 2), "ttl {ttl}: {:?}", inherited.remaining());
        inherited.release().await.unwrap();
        assert!(!exists(&node, "k"));
    }
    nothing_is_left(&node).await;
}

#[tokio::test(start_paused = true)]
async fn too_little_is_not_handed_on() {
    let node = node();
    let locks = manager(&node).await;
    let mut heir: Call = Box::pin(locks.lock("k").ttl(ms(10_000)).wait(ms(60_000)).acquire());
    let lease = before(&locks, &mut heir).await;
    node.clear_log();
    lease.release().await.unwrap();
    let own = heir.await.unwrap();
    assert_eq!(sent(&node, RELEASE), 1);
    assert!(own.remaining() > ms(9800), "{:?}", own.remaining());
    own.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn without_renewal_a_lease_lasts_its_own_ttl_whoever_had_the_key_before() {
    let node = node();
    let locks = manager(&node).await;
    // The heir is not renewed: what it begins with is all that it gets.
    for ttl in [500, 1000, 1300] {
        let mut heir: Call = Box::pin(locks.lock("k").ttl(ms(ttl)).renew(Renew::Off).wait(ms(60_000)).acquire());
        let lease = before(&locks, &mut heir).await;
        lease.release().await.unwrap();
        let own = heir.await.unwrap();
        assert!(own.remaining() >= ms(ttl * 98 / 100 - 2), "{:?} of {ttl} ms", own.remaining());
        let begun = Instant::now();
        let lost = own.lost().await;
        assert_eq!(lost.cause(), LossCause::Expired);
        assert!(begun.elapsed() <= ms(ttl), "{:?} of {ttl} ms", begun.elapsed());
        drop(own);
        gone_within(&node, "k", ms(50)).await;
    }
    // The one before was not renewed: nobody knows how much the next one would need.
    let mut heir = call(&locks);
    let lease = before_with(&locks, &mut heir, |lock| lock.ttl(ms(1000)).renew(Renew::Off)).await;
    node.clear_log();
    lease.release().await.unwrap();
    heir.await.unwrap().release().await.unwrap();
    assert_eq!(sent(&node, RELEASE), 2);
    nothing_is_left(&node).await;
}

#[tokio::test(start_paused = true)]
async fn max_hold_and_min_hold_are_each_lease_s_own() {
    let node = node();
    let locks = manager(&node).await;
    // The end set by `max_hold` counts from the heir's own beginning.
    let mut heir: Call = Box::pin(locks.lock("k").ttl(ms(600)).max_hold(ms(2000)).wait(ms(60_000)).acquire());
    let lease = before(&locks, &mut heir).await;
    sleep(ms(8)).await;
    lease.release().await.unwrap();
    let limited = heir.await.unwrap();
    let begun = Instant::now();
    assert_eq!(limited.lost().await.cause(), LossCause::MaxHold);
    assert_eq!(begun.elapsed(), ms(2000));
    drop(limited);
    gone_within(&node, "k", ms(10)).await;
    // And that of the one before is no end of the heir.
    let mut heir = call(&locks);
    let lease = before_with(&locks, &mut heir, |lock| lock.ttl(ms(1000)).max_hold(ms(1000))).await;
    lease.release().await.unwrap();
    let free = heir.await.unwrap();
    sleep(ms(3000)).await;
    assert!(free.is_held());
    free.release().await.unwrap();
    // What is left of a `min_hold` nobody inherits.
    let mut heir = call(&locks);
    let lease = before_with(&locks, &mut heir, |lock| lock.ttl(ms(1000)).min_hold(ms(700))).await;
    let begun = Instant::now();
    lease.release().await.unwrap();
    let next = heir.await.unwrap();
    assert!(begun.elapsed() >= ms(700) && begun.elapsed() <= ms(730), "{:?}", begun.elapsed());
    next.release().await.unwrap();
    // Once it is over, the key goes on; the heir's own counts from its own beginning.
    let mut heir: Call = Box::pin(locks.lock("k").ttl(ms(1000)).min_hold(ms(700)).wait(ms(60_000)).acquire());
    let lease = before_with(&locks, &mut heir, |lock| lock.ttl(ms(1000)).min_hold(ms(3))).await;
    sleep(ms(5)).await;
    node.clear_log();
    lease.release().await.unwrap();
    let last = heir.await.unwrap();
    assert_eq!(sent(&node, RELEASE), 0);
    last.release().await.unwrap();
    sleep(ms(690)).await;
    assert!(exists(&node, "k"));
    gone_within(&node, "k", ms(20)).await;
    nothing_is_left(&node).await;
}

/// The server's clock has gone back, so that the counter alone makes tokens rise.
#[tokio::test(start_paused = true)]
async fn no_fencing_token_is_given_out_twice_when_the_first_answer_got_lost() {
    let node = node();
    let (locks, others) = (manager(&node).await, manager(&node).await);
    others.lock("k").run(async |_| ()).await.unwrap();
    node.clock().step_back(Duration::from_secs(3600));
    // Nobody waits when the key is granted, and that answer is lost; somebody waits when it is asked for again.
    let lost = node.inject(Match::nth(1).script(ACQUIRE), Fault::CutAfter);
    let first = tokio::spawn(locks.lock("k").ttl(ms(3000)).wait(ms(60_000)).acquire());
    let second = tokio::spawn(locks.lock("k").ttl(ms(3000)).wait(ms(60_000)).acquire());
    let first = first.await.unwrap().unwrap();
    assert_eq!(lost.hits(), 1);
    let mut tokens = vec![first.fencing_token()];
    first.release().await.unwrap();
    let second = second.await.unwrap().unwrap();
    tokens.push(second.fencing_token());
    second.release().await.unwrap();
    let last = others.lock("k").wait(ms(1000)).acquire().await.unwrap();
    tokens.push(last.fencing_token());
    last.release().await.unwrap();
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_was_stolen_on_its_way_is_a_lost_lease_at_the_heir_s_first_renewal() {
    let node = node();
    let locks = manager(&node).await;
    let mut heir = call(&locks);
    let lease = before(&locks, &mut heir).await;
    lease.release().await.unwrap();
    settle().await;
    node.command(&["SET", "distlock:k", "thief", "PX", "5000"]).unwrap();
    let inherited = heir.await.unwrap();
    let begun = Instant::now();
    assert_eq!(inherited.lost().await.cause(), LossCause::Stolen);
    assert!(begun.elapsed() <= ms(340), "{:?}", begun.elapsed());
    drop(inherited);
    sleep(ms(100)).await;
    assert!(exists(&node, "k"), "the thief's key was deleted");
}

#[tokio::test(start_paused = true)]
async fn an_heir_that_named_the_key_in_other_words_sees_its_own() {
    let node = node();
    let locks = manager(&node).await;
    let first = locks.lock("k").ttl(ms(1000)).acquire().await.unwrap();
    let second = tokio::spawn(locks.lock("k").ttl(ms(1000)).wait(ms(60_000)).acquire());
    settle().await;
    let heir = tokio::spawn(locks.lock(["k", "k"]).ttl(ms(1000)).wait(ms(60_000)).acquire());
    settle().await;
    first.release().await.unwrap();
    let second = second.await.unwrap().unwrap();
    let token = second.fencing_token();
    second.release().await.unwrap();
    let heir = heir.await.unwrap().unwrap();
    assert_eq!(heir.fencing_tokens().collect::<Vec<_>>(), [("k", token + 1), ("k", token + 1)]);
    heir.release().await.unwrap();
    nothing_is_left(&node).await;
}

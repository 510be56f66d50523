//! D2.4 and D2.5: answers to an acquisition that are lost, late or wrong.

use distlock::LockError;
use distlock_testkit::{Fault, Match, Refusal};
use tokio::time::{Instant, sleep};

use crate::support::{ACQUIRE, RELEASE, all_is_well, exists, gone_within, manager, ms, node};

#[tokio::test(start_paused = true)]
async fn a_swallowed_answer_orphans_nothing_and_a_waiter_recognises_itself() {
    for wait in [0, 300, 5000] {
        let node = node();
        let locks = manager(&node).await;
        node.inject(Match::nth(1).script(ACQUIRE), Fault::DropReply);
        let got = locks.lock("k").ttl(ms(30_000)).wait(ms(wait)).acquire().await;
        node.clear();
        match got {
            Ok(lease) => {
                let token = lease.fencing_token();
                assert!(lease.is_held() && exists(&node, "k"));
                lease.release().await.unwrap();
                let next = locks.lock("k").acquire().await.unwrap();
                assert!(next.fencing_token() > token);
            }
            Err(error) => assert!(matches!(error, LockError::Unavailable(_)), "{error:?}"),
        }
        gone_within(&node, "k", ms(1000)).await;
        all_is_well(&node, "k", [locks]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_after_two_time_outs_is_no_lease_and_leaves_no_key() {
    let node = node();
    let locks = manager(&node).await;
    node.inject(Match::nth(1).script(ACQUIRE), Fault::DelayReply(ms(1000)));
    let error = locks.lock("k").ttl(ms(30_000)).acquire().await.unwrap_err();
    assert!(matches!(error, LockError::Unavailable(_)), "{error:?}");
    gone_within(&node, "k", ms(1500)).await;
    sleep(ms(5000)).await;
    assert!(!exists(&node, "k"));
    all_is_well(&node, "k", [locks]).await;
}

#[tokio::test(start_paused = true)]
async fn a_compensation_that_is_late_does_not_delete_the_lease_of_the_retry() {
    let node = node();
    let locks = manager(&node).await;
    node.inject(Match::nth(1).script(ACQUIRE), Fault::DropReply);
    // The compensation itself is on its way for a long time.
    node.inject(Match::every().script(RELEASE), Fault::DelayCommand(ms(1500)));
    assert!(locks.lock("k").ttl(ms(1000)).acquire().await.is_err());
    let lease = locks.lock("k").ttl(ms(30_000)).wait(ms(10_000)).acquire().await.unwrap();
    node.clear();
    for _ in 0..500 {
        sleep(ms(10)).await;
        assert!(lease.is_held() && exists(&node, "k"));
    }
    lease.release().await.unwrap();
    gone_within(&node, "k", ms(1000)).await;
    all_is_well(&node, "k", [locks]).await;
}

#[tokio::test(start_paused = true)]
async fn a_copy_of_an_acquisition_that_comes_after_everything_is_refused() {
    let node = node();
    let locks = manager(&node).await;
    // On its way for longer than the call and its compensation, which takes another connection.
    node.inject(Match::nth(1).script(ACQUIRE), Fault::DelayCommand(ms(20_000)));
    assert!(locks.lock("k").ttl(ms(30_000)).wait(ms(900)).acquire().await.is_err());
    let begun = Instant::now();
    while begun.elapsed() < ms(40_000) {
        sleep(ms(50)).await;
        assert!(!exists(&node, "k"), "the late copy was granted after {:?}", begun.elapsed());
    }
    all_is_well(&node, "k", [locks]).await;
}

#[tokio::test(start_paused = true)]
async fn a_frozen_server_that_executes_what_it_has_buffered_keeps_no_key() {
    for (wait, frozen) in [(0, 100), (0, 700), (0, 3000), (300, 2000), (2000, 5000), (2000, 90_000)] {
        let node = node();
        let locks = manager(&node).await;
        node.freeze();
        assert!(locks.lock("k").ttl(ms(30_000)).wait(ms(wait)).acquire().await.is_err() || frozen < 500);
        sleep(ms(frozen)).await;
        node.thaw();
        sleep(ms(1)).await;
        gone_within(&node, "k", ms(1000)).await;
        sleep(ms(3000)).await;
        assert!(!exists(&node, "k"), "wait {wait}, frozen for {frozen}");
        all_is_well(&node, "k", [locks]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn each_error_answer_is_what_it_is_and_the_next_call_works() {
    let node = node();
    let locks = manager(&node).await;
    let outages = [
        Refusal::Busy,
        Refusal::Loading,
        Refusal::ReadOnly,
        Refusal::Oom,
        Refusal::ClusterDown,
        Refusal::MisConf,
        Refusal::TryAgain,
        Refusal::MasterDown,
    ];
    for refusal in outages {
        let all = node.inject(Match::every().script(ACQUIRE), Fault::Refuse(refusal.clone()));
        let error = locks.lock("k").acquire().await.unwrap_err();
        assert!(matches!(error, LockError::Unavailable(_)), "{refusal:?}: {error:?}");
        all.remove();
        // Once is not enough to be told of it.
        node.inject(Match::nth(1).script(ACQUIRE), Fault::Refuse(refusal.clone()));
        locks.lock("k").wait(ms(1000)).acquire().await.unwrap().release().await.unwrap();
        node.clear();
    }
    node.inject(Match::nth(1).script(ACQUIRE), Fault::Refuse(Refusal::NoPerm));
    let error = locks.lock("k").acquire().await.unwrap_err();
    assert!(matches!(error, LockError::Permission(_)), "{error:?}");
    node.inject(Match::nth(1).script(ACQUIRE), Fault::Refuse(Refusal::NoScript));
    locks.lock("k").acquire().await.unwrap().release().await.unwrap();
    all_is_well(&node, "k", [locks]).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_freezes_after_it_said_held_is_an_outage_however_the_budget_ends() {
    // With the shorter ttl the waiter asks in between as well, to keep its place, and is not answered.
    for (wait, ttl) in (300..1700).step_by(20).flat_map(|wait| [(wait, 30_000), (wait, 1000)]) {
        let node = node();
        let (holder, locks) = (manager(&node).await, manager(&node).await);
        let held = holder.lock("k").ttl(ms(60_000)).acquire().await.unwrap();
        let waiting = tokio::spawn(locks.lock("k").ttl(ms(ttl)).wait(ms(wait)).around(async {}));
        sleep(ms(10)).await;
        node.freeze();
        let error = waiting.await.unwrap().unwrap_err();
        assert!(matches!(error, LockError::Unavailable(_)), "a wait of {wait} ms, ttl {ttl} ms: {error:?}");
        node.thaw();
        held.release().await.unwrap();
        gone_within(&node, "k", ms(1000)).await;
    }
}

//! D2.9: releases that are not answered, answered late, or refused.

use distlock::{LockError, Release};
use distlock_testkit::{Fault, Match, Refusal};
use tokio::time::{Instant, sleep};

use crate::support::{RELEASE, all_is_well, exists, gone_within, manager, ms, node};

#[tokio::test(start_paused = true)]
async fn whatever_happens_to_a_release_the_body_s_outcome_stands_and_the_key_goes() {
    let faults = [
        Fault::DropReply,
        Fault::DelayReply(ms(900)),
        Fault::DelayCommand(ms(900)),
        Fault::CutBefore,
        Fault::CutAfter,
        Fault::BlackHole,
        Fault::Reset,
        Fault::Refuse(Refusal::Busy),
        Fault::Refuse(Refusal::Loading),
        Fault::Refuse(Refusal::ReadOnly),
        Fault::Refuse(Refusal::MisConf),
        Fault::Refuse(Refusal::NoPerm),
        Fault::Refuse(Refusal::NoScript),
        Fault::Duplicate(ms(500)),
    ];
    let node = node();
    let locks = manager(&node).await;
    for fault in faults {
        node.inject(Match::nth(1).script(RELEASE), fault.clone());
        let begun = Instant::now();
        let out = locks.lock("k").ttl(ms(30_000)).run(async |_| 42).await;
        assert_eq!(out.unwrap(), 42, "{fault:?}");
        assert!(begun.elapsed() <= ms(510), "{fault:?}: the caller waited {:?}", begun.elapsed());
        gone_within(&node, "k", ms(1500)).await;
        sleep(ms(2000)).await;
        assert!(!exists(&node, "k"), "{fault:?}");
        node.clear();
    }
    all_is_well(&node, "k", [locks]).await;
}

#[tokio::test(start_paused = true)]
async fn a_release_by_hand_says_that_it_was_not_answered_and_goes_on() {
    let node = node();
    let locks = manager(&node).await;
    let lease = locks.lock("k").ttl(ms(30_000)).acquire().await.unwrap();
    node.inject(Match::every().script(RELEASE), Fault::Refuse(Refusal::Loading));
    assert!(matches!(lease.release().await, Err(LockError::Unavailable(_))));
    sleep(ms(20_000)).await;
    assert!(exists(&node, "k"));
    node.clear();
    gone_within(&node, "k", ms(1000)).await;
    all_is_well(&node, "k", [locks]).await;
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_under_load_gives_everything_back() {
    let node = node();
    let locks = manager(&node).await;
    let tasks: Vec<_> = (0..100)
        .map(|number| {
            let locks = locks.clone();
            tokio::spawn(async move {
                loop {
                    let lock = locks.lock(format!("k{}", number % 20)).ttl(ms(5000)).wait(ms(1000));
                    if let Err(LockError::Closed(_)) = lock.run(async |_| sleep(ms(7)).await).await {
                        return;
                    }
                }
            })
        })
        .collect();
    sleep(ms(500)).await;
    let shutdown = locks.shutdown(ms(2000)).await;
    assert_eq!(shutdown.left, 0);
    assert!(shutdown.released > 0);
    for number in 0..20 {
        assert!(!exists(&node, &format!("k{number}")));
    }
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_stolen_is_already_lost_when_it_is_released() {
    let node = node();
    let locks = manager(&node).await;
    let lease = locks.lock("k").acquire().await.unwrap();
    node.command(&["SET", "distlock:k", "thief", "PX", "60000"]).unwrap();
    assert_eq!(lease.release().await.unwrap(), Release::AlreadyLost);
    assert!(exists(&node, "k"));
}

//! Keys that are kept after the body, when the release that keeps them meets faults.

use std::time::Duration;

use distlock::{LockError, LockManager, distributed_lock};
use distlock_testkit::{Fault, Match, Refusal};
use tokio::time::sleep;

use crate::support::{Node, RELEASE, exists, manager, ms, node};

const HOUR: Duration = Duration::from_secs(3600);

#[distributed_lock(key = "k", ttl = "30s", manager = locks, after_ok = keep(HOUR))]
async fn once(locks: &LockManager, body: Duration) -> Result<u8, LockError> {
    sleep(body).await;
    Ok(42)
}

/// How long the key has still to live.
fn left(node: &Node) -> Duration {
    ms(node.command(&["PTTL", "distlock:k"]).unwrap().as_int().unwrap().try_into().unwrap_or(0))
}

#[tokio::test(start_paused = true)]
async fn whatever_happens_to_the_release_the_key_is_kept_and_the_body_s_outcome_stands() {
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
        Fault::Refuse(Refusal::NoScript),
        Fault::Duplicate(ms(500)),
    ];
    for fault in faults {
        let node = node();
        let locks = manager(&node).await;
        node.inject(Match::nth(1).script(RELEASE), fault.clone());
        assert_eq!(once(&locks, ms(1)).await.unwrap(), 42, "{fault:?}");
        sleep(ms(5000)).await;
        let rest = left(&node);
        assert!(rest > HOUR - ms(10_000) && rest <= HOUR, "{fault:?}: {rest:?}");
        let again = once(&manager(&node).await, ms(1)).await;
        assert!(matches!(again, Err(LockError::Busy(_))), "{fault:?}: {again:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_in_its_release_keeps_the_key_as_well() {
    let node = node();
    let locks = manager(&node).await;
    let _delay = node.inject(Match::nth(1).script(RELEASE), Fault::DelayReply(ms(400)));
    assert!(tokio::time::timeout(ms(100), once(&locks, ms(10))).await.is_err());
    sleep(ms(2000)).await;
    assert!(left(&node) > HOUR - ms(10_000));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_in_its_body_or_lost_keeps_nothing() {
    let node = node();
    let locks = manager(&node).await;
    assert!(tokio::time::timeout(ms(100), once(&locks, ms(5000))).await.is_err());
    sleep(ms(1000)).await;
    assert!(!exists(&node, "k"));
    let taking_away = async {
        sleep(ms(1000)).await;
        node.command(&["DEL", "distlock:k"]).unwrap();
    };
    let (out, ()) = tokio::join!(once(&locks, ms(60_000)), taking_away);
    assert!(out.unwrap_err().is_lost());
    assert!(!exists(&node, "k"));
}

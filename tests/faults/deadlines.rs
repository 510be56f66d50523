//! D2.6 and D2.8: the lease's own clock, whatever the server and its connections do.

use std::cell::Cell;

use distlock::{LossCause, Renew};
use distlock_testkit::{Fault, Match};
use tokio::time::{Instant, sleep};

use crate::support::{ACQUIRE, all_is_well, gone_within, manager, ms, node};

#[tokio::test(start_paused = true)]
async fn with_everything_frozen_the_loss_is_told_at_the_deadline_and_the_body_is_not_polled_after_it() {
    for at in [0, 50, 200, 333, 334, 600, 990] {
        let node = node();
        let locks = manager(&node).await;
        let last_step = Cell::new(Instant::now());
        let deadline = Cell::new(None);
        let out = locks
            .lock("k")
            .ttl(ms(1000))
            .run(async |lease| {
                sleep(ms(at)).await;
                node.freeze();
                loop {
                    last_step.set(Instant::now());
                    deadline.set(Some(Instant::now() + lease.remaining()));
                    sleep(ms(1)).await;
                }
            })
            .await;
        let told = Instant::now();
        let error = out.map(|(): ()| ()).unwrap_err();
        assert!(matches!(&error, distlock::LockError::Lost(lost) if lost.cause() == LossCause::Expired), "{error:?}");
        let deadline = deadline.get().unwrap();
        assert!(last_step.get() < deadline, "a step began after the deadline");
        assert!(told >= deadline && told <= deadline + ms(50), "told {:?} after the deadline", told - deadline);
        node.thaw();
        gone_within(&node, "k", ms(1000)).await;
        all_is_well(&node, "k", [locks]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_whose_clock_jumps_forward_is_noticed_at_the_next_renewal() {
    let node = node();
    let locks = manager(&node).await;
    let lease = locks.lock("k").ttl(ms(3000)).acquire().await.unwrap();
    sleep(ms(100)).await;
    node.clock().step_forward(std::time::Duration::from_secs(24 * 60 * 60));
    let begun = Instant::now();
    assert_eq!(lease.lost().await.cause(), LossCause::Deleted);
    assert!(begun.elapsed() <= ms(1000), "{:?}", begun.elapsed());
    let next = locks.lock("k").acquire().await.unwrap();
    assert!(next.fencing_token() > lease.fencing_token());
    // Back again: a key may then live longer than its lease, but no token may fall.
    node.clock().step_back(std::time::Duration::from_secs(60 * 60));
    let token = next.fencing_token();
    next.release().await.unwrap();
    let last = locks.lock("k").wait(ms(1000)).acquire().await.unwrap();
    assert!(last.fencing_token() > token);
    last.release().await.unwrap();
    drop(lease);
    all_is_well(&node, "k", [locks]).await;
}

#[tokio::test(start_paused = true)]
async fn clocks_at_different_rates_within_the_drift_never_overlap() {
    for ppm in [-9_000, 9_000] {
        let node = node();
        node.clock().set_rate(ppm);
        let (first, second) = (manager(&node).await, manager(&node).await);
        for _ in 0..20 {
            let lease = first.lock("k").ttl(ms(10_000)).renew(Renew::Off).wait(ms(20_000)).acquire().await.unwrap();
            let waiting = second.clone();
            let next = tokio::spawn(async move { waiting.lock("k").wait(ms(20_000)).acquire().await.unwrap() });
            let other = next.await.unwrap();
            assert!(!lease.is_held(), "{ppm} ppm: both are valid");
            other.release().await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_validity_counts_from_the_sending_of_what_was_answered() {
    let node = node();
    let locks = manager(&node).await;
    for late in [1, 100, 400] {
        node.inject(Match::nth(1).script(ACQUIRE), Fault::DelayReply(ms(late)));
        let lease = locks.lock("k").ttl(ms(1000)).acquire().await.unwrap();
        assert_eq!(lease.remaining(), ms(988 - late));
        lease.release().await.unwrap();
    }
    // Less than a tenth is left: not worth starting on.
    node.inject(Match::nth(1).script(ACQUIRE), Fault::DelayReply(ms(450)));
    assert!(locks.lock("k").ttl(ms(500)).acquire().await.is_err());
    gone_within(&node, "k", ms(50)).await;
    all_is_well(&node, "k", [locks]).await;
}

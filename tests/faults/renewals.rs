//! D2.7: what can happen to a renewal, and what must become of the lease.

use distlock::LossCause;
use distlock_testkit::{Fault, Match, Refusal};
use tokio::time::{Instant, sleep};

use crate::support::{RENEW, all_is_well, exists, gone_within, manager, ms, node};

#[tokio::test(start_paused = true)]
async fn each_transient_fault_at_each_renewal_is_survived() {
    let faults = [
        Fault::Refuse(Refusal::Busy),
        Fault::Refuse(Refusal::Loading),
        Fault::Refuse(Refusal::ReadOnly),
        Fault::Refuse(Refusal::Oom),
        Fault::Refuse(Refusal::NoScript),
        Fault::Refuse(Refusal::ClusterDown),
        Fault::Refuse(Refusal::MisConf),
        Fault::Refuse(Refusal::TryAgain),
        Fault::Refuse(Refusal::NoPerm),
        Fault::DelayCommand(ms(200)),
        Fault::DelayReply(ms(200)),
        Fault::DropReply,
        Fault::CutBefore,
        Fault::CutAfter,
        Fault::BlackHole,
        Fault::Reset,
        Fault::Duplicate(ms(300)),
    ];
    let node = node();
    let locks = manager(&node).await;
    for fault in faults {
        for nth in 1..=4 {
            let lease = locks.lock("k").ttl(ms(3000)).acquire().await.unwrap();
            node.inject(Match::nth(nth).script(RENEW), fault.clone());
            sleep(ms(8000)).await;
            assert!(lease.is_held() && exists(&node, "k"), "{fault:?} at renewal {nth}");
            node.clear();
            lease.release().await.unwrap();
        }
    }
    all_is_well(&node, "k", [locks]).await;
}

#[tokio::test(start_paused = true)]
async fn renewals_that_vanish_from_any_moment_on_end_the_lease_at_its_own_deadline() {
    for from in 1..=4 {
        let node = node();
        let locks = manager(&node).await;
        let lease = locks.lock("k").ttl(ms(1000)).acquire().await.unwrap();
        // Teaches the server the script, so that each renewal is one command.
        lease.extend(ms(10)).await.unwrap();
        node.inject(Match::from_nth(from).script(RENEW), Fault::BlackHole);
        // The renewal before was sent at a third of the ttl each, and counts from there.
        let last = ms(1000).mul_f64((from - 1) as f64 / 3.0);
        let begun = Instant::now();
        let lost = lease.lost().await;
        assert_eq!(lost.cause(), LossCause::Expired);
        let expected = last + ms(988);
        assert!(
            begun.elapsed() >= expected - ms(5) && begun.elapsed() <= expected + ms(50),
            "{:?}, not {expected:?}",
            begun.elapsed()
        );
        node.clear();
        drop(lease);
        gone_within(&node, "k", ms(1000)).await;
        all_is_well(&node, "k", [locks]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_was_deleted_stolen_or_stolen_and_gone_is_lost_at_the_next_renewal() {
    let node = node();
    let locks = manager(&node).await;
    let steal = |expiry: &str| drop(node.command(&["SET", "distlock:k", "thief", "PX", expiry]).unwrap());
    for at in [1, 100, 333, 334, 500, 667, 900] {
        for (cause, theft) in [(LossCause::Deleted, 0), (LossCause::Stolen, 60_000), (LossCause::Deleted, 5)] {
            let lease = locks.lock("k").ttl(ms(1000)).acquire().await.unwrap();
            sleep(ms(at)).await;
            match theft {
                0 => drop(node.command(&["DEL", "distlock:k"]).unwrap()),
                expiry => steal(&expiry.to_string()),
            }
            let begun = Instant::now();
            let lost = lease.lost().await;
            assert!(begun.elapsed() <= ms(340), "{cause:?} at {at} ms: told after {:?}", begun.elapsed());
            // A theft of five milliseconds may fall onto a renewal itself.
            assert!(lost.cause() == cause || theft == 5, "{:?} instead of {cause:?}", lost.cause());
            if theft == 60_000 {
                assert!(exists(&node, "k"), "the thief's key was touched");
            }
            drop(lease);
            sleep(ms(10)).await;
            node.command(&["DEL", "distlock:k"]).unwrap();
        }
    }
    all_is_well(&node, "k", [locks]).await;
}

#[tokio::test(start_paused = true)]
async fn flushed_scripts_and_restarts_between_any_two_commands() {
    let node = node();
    let locks = manager(&node).await;
    for at in (0..1500).step_by(50) {
        for restart in [false, true] {
            let lease = locks.lock("k").ttl(ms(900)).wait(ms(1000)).acquire().await.unwrap();
            sleep(ms(at)).await;
            if restart {
                node.restart(true);
            } else {
                node.command(&["SCRIPT", "FLUSH"]).unwrap();
            }
            sleep(ms(1000)).await;
            assert!(lease.is_held() && exists(&node, "k"), "restart {restart} at {at} ms");
            node.command(&["SCRIPT", "FLUSH"]).unwrap();
            drop(lease.release().await);
            gone_within(&node, "k", ms(1000)).await;
        }
    }
    all_is_well(&node, "k", [locks]).await;
}

/// Five hundred leases over a line of up to 80 ms that loses one answer in twenty.
#[tokio::test(start_paused = true)]
async fn no_lease_ends_on_the_server_before_its_holder_is_told() {
    let node = node();
    let locks = manager(&node).await;
    let mut leases = Vec::new();
    for number in 0..500 {
        leases.push(locks.lock(format!("k{number}")).ttl(ms(1000)).acquire().await.unwrap());
    }
    let dice = fastrand_like(7);
    let counter = std::sync::atomic::AtomicU64::new(1);
    let roll = move || dice(counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
    let begun = Instant::now();
    while begun.elapsed() < ms(60_000) {
        let (late, lost) = (roll() % 80, roll() % 20 == 0);
        let fault = if lost { Fault::CutAfter } else { Fault::DelayReply(ms(late)) };
        node.inject(Match::nth(1).script(RENEW), fault);
        sleep(ms(20)).await;
        for lease in &leases {
            assert!(!lease.is_held() || exists(&node, lease.key()), "`{}` is held and not there", lease.key());
        }
        if begun.elapsed() > ms(2000) && roll() % 50 == 0 {
            node.clear();
        }
    }
    let held = leases.iter().filter(|lease| lease.is_held()).count();
    assert!(held > 450, "{held} of 500 are left");
}

/// A sequence of numbers that looks like chance and is the same in every run.
fn fastrand_like(seed: u64) -> impl Fn(u64) -> u64 {
    move |n| {
        let mut x = seed.wrapping_add(n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }
}

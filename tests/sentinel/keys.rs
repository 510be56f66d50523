//! What becomes of those who hold a lock through a failover.

use distlock::{LockError, LockManager, LossCause};
use distlock_testkit::sentinels_or_skip;

use crate::failover::{cut_off_replicas, failovers};
use crate::{ms, timed};

#[tokio::test]
async fn a_lease_whose_key_survives_goes_on() {
    let set = sentinels_or_skip!();
    let locks = LockManager::connect(set.url()).await.unwrap();
    let lease = locks.lock("k").ttl(ms(6000)).acquire().await.unwrap();
    let old = set.primary().unwrap();
    assert_eq!(old.command(&["WAIT", "2", "5000"]).unwrap().as_int(), Some(2));
    old.kill().unwrap();
    set.wait_for_failover(old).unwrap();
    // Two renewals were due meanwhile, and one of them has found the new primary.
    tokio::time::sleep(ms(4000)).await;
    assert!(lease.remaining() > ms(3000), "{:?}", lease.remaining());
    // The front connection has not been used since: its first command finds out.
    let _ = lease.release().await;
    locks.lock("k").wait(ms(1000)).run(async |_| ()).await.unwrap();
}

#[tokio::test]
async fn a_lease_whose_key_does_not_survive_is_lost_at_its_next_renewal_and_its_token_is_outdated() {
    let set = sentinels_or_skip!();
    let (locks, others) =
        (LockManager::connect(set.url()).await.unwrap(), LockManager::connect(set.url()).await.unwrap());
    locks.lock("warm").run(async |_| ()).await.unwrap();
    let old = set.primary().unwrap();
    cut_off_replicas(old);
    let lease = locks.lock("k").ttl(ms(9000)).acquire().await.unwrap();
    old.kill().unwrap();
    set.wait_for_failover(old).unwrap();
    let next = others.lock("k").ttl(ms(9000)).wait(ms(2000)).acquire().await.unwrap();
    assert!(next.fencing_token() > lease.fencing_token());
    let (lost, took) = timed(lease.lost()).await;
    assert_eq!(lost.cause(), LossCause::Stolen);
    assert!(took < ms(3500), "{took:?}");
    assert!(next.is_held());
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_all_replicas_have_acknowledged_survives() {
    let set = sentinels_or_skip!();
    let builder = || LockManager::builder().url(set.url()).replica_acks(2, ms(400));
    let mut before = 0;
    for _ in 0..failovers() {
        // A replica that has just come answers late.
        let locks = builder().build().await.unwrap();
        let lease = locks.lock("k").ttl(ms(20_000)).wait(ms(10_000)).acquire().await.unwrap();
        let old = set.primary().unwrap();
        old.kill().unwrap();
        let new = set.wait_for_failover(old).unwrap();
        assert_eq!(new.command(&["EXISTS", "distlock:k"]).unwrap().as_int(), Some(1));
        assert!(lease.is_held() && lease.fencing_token() > before);
        before = lease.fencing_token();
        // One of two replicas is missing, so nobody gets a lock now.
        let (out, took) = timed(locks.lock("other").wait(ms(1500)).acquire()).await;
        let error = out.unwrap_err();
        assert!(matches!(error, LockError::Unavailable(_)) && error.to_string().contains("replicas"), "{error:?}");
        assert!(took < ms(2500), "{took:?}");
        set.rejoin(old).unwrap();
        set.wait_until_stable().unwrap();
        lease.release().await.unwrap();
    }
}

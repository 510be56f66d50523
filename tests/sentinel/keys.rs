//! What becomes of those who hold a lock through a failover.

use distlock::{LockManager, LossCause};
use distlock_testkit::{Server, sentinels_or_skip};

use crate::{ms, timed};

/// From now on nothing reaches the replicas: a lock taken now does not survive.
fn cut_off_replicas(primary: &Server) {
    primary.command(&["CONFIG", "SET", "requirepass", "unknown"]).unwrap();
    primary.command(&["CLIENT", "KILL", "TYPE", "replica"]).unwrap();
}

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

//! Locks of a cluster that count once the replicas of their primary have them.

use distlock::{LockError, LockManager, LossCause};
use distlock_testkit::{Cluster, Reply, cluster_or_skip};

use crate::support::{exists, ms, timed, until};

async fn manager(cluster: &Cluster, limit: u64) -> LockManager {
    LockManager::builder().url(cluster.url()).replica_acks(1, ms(limit)).build().await.unwrap()
}

/// Whether the replica of the primary that has the key has it, too.
fn is_on_the_replica(cluster: &Cluster, key: &str) -> bool {
    let key = format!("distlock:{key}");
    let replica = cluster.replica_of(&key).unwrap();
    replica.command(&["READONLY"]).unwrap();
    replica.command(&["EXISTS", &key]).as_ref().map(Reply::as_int).unwrap() == Some(1)
}

/// A key for each primary.
fn one_key_each(cluster: &Cluster) -> Vec<String> {
    let mut ports = Vec::new();
    let mut is_new = |key: &String| {
        let port = cluster.primary_of(&format!("distlock:{key}")).unwrap().port();
        let is_new = !ports.contains(&port);
        if is_new {
            ports.push(port);
        }
        is_new
    };
    (0..100).map(|number| format!("k{number}")).filter(|key| is_new(key)).collect()
}

#[tokio::test]
async fn a_granted_lock_is_on_the_replica_of_its_primary_and_stays_there() {
    let cluster = cluster_or_skip!();
    let locks = manager(&cluster, 1000).await;
    let mut leases = Vec::new();
    for number in 0..60 {
        leases.push(locks.lock(format!("k{number}")).ttl(ms(1500)).acquire().await.unwrap());
        assert!(is_on_the_replica(&cluster, &format!("k{number}")), "{number}");
    }
    // Renewals of many slots are acknowledged together.
    tokio::time::sleep(ms(3200)).await;
    assert!(leases.iter().all(|lease| lease.is_held()));
    let several = locks.lock(["{shop}:a", "{shop}:b"]).acquire().await.unwrap();
    assert!(is_on_the_replica(&cluster, "{shop}:a") && is_on_the_replica(&cluster, "{shop}:b"));
    several.extend(ms(90_000)).await.unwrap();
    several.release().await.unwrap();
}

#[tokio::test]
async fn too_few_acknowledgements_give_the_lock_back_on_that_primary_alone() {
    let cluster = cluster_or_skip!();
    let locks = manager(&cluster, 150).await;
    let keys = one_key_each(&cluster);
    assert_eq!(keys.len(), 3);
    for key in &keys {
        locks.lock(&**key).run(async |_| ()).await.unwrap();
    }
    let replica = cluster.replica_of(&format!("distlock:{}", keys[0])).unwrap();
    replica.pause().unwrap();
    let (out, took) = timed(locks.lock(&*keys[0]).acquire()).await;
    let error = out.unwrap_err();
    assert!(matches!(error, LockError::Unavailable(_)), "{error:?}");
    assert!(error.to_string().contains("0 of 1 replicas acknowledged"), "{error}");
    assert!(took < ms(800), "{took:?}");
    until("the key is gone", ms(500), || !exists(&cluster, &keys[0])).await;
    for key in &keys[1..] {
        locks.lock(&**key).run(async |_| ()).await.unwrap();
    }
    replica.resume().unwrap();
    locks.lock(&*keys[0]).wait(ms(5000)).run(async |_| ()).await.unwrap();
}

#[tokio::test]
async fn renewals_that_one_replica_does_not_acknowledge_end_the_leases_of_its_primary_alone() {
    let cluster = cluster_or_skip!();
    let locks = manager(&cluster, 100).await;
    let keys = one_key_each(&cluster);
    let mut leases = Vec::new();
    for key in &keys {
        leases.push(locks.lock(&**key).ttl(ms(1200)).acquire().await.unwrap());
    }
    let replica = cluster.replica_of(&format!("distlock:{}", keys[0])).unwrap();
    replica.pause().unwrap();
    let (lost, _) = timed(leases[0].lost()).await;
    assert_eq!(lost.cause(), LossCause::Expired);
    tokio::time::sleep(ms(600)).await;
    assert!(leases[1..].iter().all(|lease| lease.is_held()));
    replica.resume().unwrap();
}

#[tokio::test]
async fn a_key_whose_slot_is_on_its_way_is_acknowledged_where_it_is() {
    let cluster = cluster_or_skip!();
    let locks = manager(&cluster, 1000).await;
    let held = locks.lock("{shop}:held").ttl(ms(1200)).acquire().await.unwrap();
    let to = cluster.other_primary("{shop}").unwrap();
    let migration = cluster.migrate("{shop}", to).unwrap();
    migration.move_key("distlock:{shop}:held").unwrap();
    tokio::time::sleep(ms(2500)).await;
    held.ensure_held().unwrap();
    migration.finish().unwrap();
    tokio::time::sleep(ms(1500)).await;
    held.ensure_held().unwrap();
    held.release().await.unwrap();
    locks.lock("{shop}:held").run(async |_| ()).await.unwrap();
}

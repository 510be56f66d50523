//! Keys in all slots are taken, kept and given back.

use std::collections::BTreeSet;

use distlock::{LockError, LockManager, Release, distributed_lock};
use distlock_testkit::cluster_or_skip;

use crate::support::{exists, manager, ms, names, until};

/// Enough for each node to have dozens.
const KEYS: usize = 200;

fn keys() -> impl Iterator<Item = String> {
    (0..KEYS).map(|number| format!("order:{number}"))
}

#[tokio::test]
async fn keys_of_all_nodes_are_held_across_renewals_and_given_back() {
    let cluster = cluster_or_skip!();
    let (locks, others) = (manager(&cluster).await, manager(&cluster).await);
    let ttl = ms(900);
    let taken: Vec<_> = keys().map(|key| tokio::spawn(locks.lock(key).ttl(ttl).acquire())).collect();
    let mut leases = Vec::new();
    for lease in taken {
        leases.push(lease.await.unwrap().unwrap());
    }
    let nodes: BTreeSet<u16> =
        keys().map(|key| cluster.primary_of(&format!("distlock:{key}")).unwrap().port()).collect();
    assert_eq!(nodes.len(), 3);
    tokio::time::sleep(ttl * 2).await;
    assert!(leases.iter().all(|lease| lease.is_held()));
    for key in keys().step_by(10) {
        let Err(LockError::Busy(busy)) = others.lock(&*key).acquire().await else { panic!("`{key}` was not held") };
        assert_eq!(busy.holder().unwrap().pid(), std::process::id());
    }
    let tokens: Vec<u64> = leases.iter().map(|lease| lease.fencing_token()).collect();
    for lease in leases {
        assert_eq!(lease.release().await.unwrap(), Release::Released);
    }
    for (key, token) in keys().zip(tokens) {
        let again = others.lock(&*key).acquire().await.unwrap();
        assert!(again.fencing_token() > token, "`{key}`");
        again.release().await.unwrap();
    }
    // What is left are counters, each in its slot.
    let slots: BTreeSet<u16> = keys().map(|key| cluster.slot_of(&format!("distlock:{key}")).unwrap()).collect();
    let left = names(&cluster);
    assert!(left.iter().all(|name| name.ends_with("}:distlock:fence")), "{left:?}");
    assert_eq!(left.iter().map(|name| cluster.slot_of(name).unwrap()).collect::<BTreeSet<_>>(), slots);
}

#[tokio::test]
async fn keys_of_one_slot_are_renewed_by_the_hundred() {
    let cluster = cluster_or_skip!();
    let locks = manager(&cluster).await;
    let mut leases = Vec::new();
    for number in 0..250 {
        leases.push(locks.lock(format!("{{shop}}:{number}")).ttl(ms(900)).acquire().await.unwrap());
    }
    let node = cluster.primary_of("{shop}").unwrap();
    node.command(&["CONFIG", "RESETSTAT"]).unwrap();
    tokio::time::sleep(ms(3000)).await;
    assert!(leases.iter().all(|lease| lease.is_held()));
    // Ten rounds of three scripts.
    let scripts = node.calls("evalsha").unwrap() + node.calls("eval").unwrap();
    assert!((20..80).contains(&scripts), "{scripts}");
}

#[tokio::test]
async fn several_keys_with_one_hash_tag_are_one_lock() {
    let cluster = cluster_or_skip!();
    let (locks, others) = (manager(&cluster).await, manager(&cluster).await);

    #[distributed_lock(keys = ["{{shop:{shop}}}:stock", "{{shop:{shop}}}:till"], manager = locks)]
    async fn close(locks: &LockManager, shop: u32, others: &LockManager) -> Result<(), LockError> {
        for key in ["{shop:7}:stock", "{shop:7}:till"] {
            assert!(others.lock(key).acquire().await.unwrap_err().is_busy());
        }
        Ok(())
    }

    close(&locks, 7, &others).await.unwrap();
    for key in ["{shop:7}:stock", "{shop:7}:till"] {
        assert!(!exists(&cluster, key));
    }
}

#[tokio::test]
async fn a_dropped_call_leaves_no_key_behind() {
    let cluster = cluster_or_skip!();
    let locks = manager(&cluster).await;
    for number in 0..20 {
        let key = format!("dropped:{number}");
        let call = tokio::spawn(locks.lock(&*key).around(std::future::pending::<()>()));
        until("it is held", ms(3000), || exists(&cluster, &key)).await;
        call.abort();
        until("it is released", ms(3000), || !exists(&cluster, &key)).await;
    }
}

/// The slot of a key without a hash tag (CRC16, XMODEM), as the cluster's specification has it.
fn slot(key: &str) -> usize {
    let step = |crc: u16, byte: u8| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 })
    };
    usize::from(key.bytes().fold(0, step)) % SLOTS
}

const SLOTS: usize = 16_384;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_of_each_slot_is_taken_and_given_back() {
    let cluster = cluster_or_skip!();
    let locks = manager(&cluster).await;
    assert_eq!(slot("distlock:order:7"), usize::from(cluster.slot_of("distlock:order:7").unwrap()));
    let mut seen = vec![false; SLOTS];
    let is_new = |key: &String| !std::mem::replace(&mut seen[slot(&format!("distlock:{key}"))], true);
    let keys: Vec<String> = (0_u32..).map(|number| format!("k{number}")).filter(is_new).take(SLOTS).collect();
    for some in keys.chunks(256) {
        let calls: Vec<_> = some.iter().map(|key| tokio::spawn(locks.lock(&**key).around(async {}))).collect();
        for call in calls {
            call.await.unwrap().unwrap();
        }
    }
    let left = names(&cluster);
    assert_eq!(left.len(), SLOTS, "a counter for each slot, and nothing else");
    assert!(left.iter().all(|name| name.ends_with("}:distlock:fence")));
}

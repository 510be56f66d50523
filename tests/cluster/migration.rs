//! A slot moves from one node to another, step by step, with locks in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use distlock::{LockError, Release};
use distlock_testkit::{Builder, cluster_or_skip};

use crate::support::{exists, manager, ms, timed, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_key_is_held_at_each_step() {
    let cluster = cluster_or_skip!();
    let (locks, others) = (manager(&cluster).await, manager(&cluster).await);
    let ttl = ms(600);
    let lease = locks.lock("k").ttl(ttl).acquire().await.unwrap();
    let to = cluster.other_primary("distlock:k").unwrap();
    let migration = cluster.migrate("distlock:k", to).unwrap();
    tokio::time::sleep(ttl * 2).await;
    assert!(lease.is_held(), "with the key still at the old node");
    migration.move_key("distlock:k").unwrap();
    tokio::time::sleep(ttl * 2).await;
    assert!(lease.is_held(), "with the key at the new node and the slot at the old one");
    tokio::task::block_in_place(|| migration.finish().unwrap());
    tokio::time::sleep(ttl * 2).await;
    assert!(lease.is_held(), "with the slot at the new node");
    assert!(others.lock("k").acquire().await.unwrap_err().is_busy());
    let token = lease.fencing_token();
    assert_eq!(lease.release().await.unwrap(), Release::Released);
    let next = others.lock("k").acquire().await.unwrap();
    assert!(next.fencing_token() > token);
    assert_eq!(cluster.primary_of("distlock:k").unwrap().port(), to.port());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn held_keys_of_which_half_have_moved_are_all_held() {
    let cluster = cluster_or_skip!();
    let locks = manager(&cluster).await;
    let ttl = ms(900);
    let mut leases = Vec::new();
    for number in 0..60 {
        leases.push(locks.lock(format!("{{shop}}:{number}")).ttl(ttl).acquire().await.unwrap());
    }
    let migration = cluster.migrate("{shop}", cluster.other_primary("{shop}").unwrap()).unwrap();
    for number in (0..60).step_by(2) {
        migration.move_key(&format!("distlock:{{shop}}:{number}")).unwrap();
    }
    tokio::time::sleep(ttl * 3).await;
    for lease in &leases {
        assert!(lease.is_held(), "{}", lease.key());
    }
    tokio::task::block_in_place(|| migration.finish().unwrap());
    tokio::time::sleep(ttl * 2).await;
    for lease in leases {
        assert_eq!(lease.release().await.unwrap(), Release::Released);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_in_a_slot_on_its_way_is_unavailable_and_waits_for_the_end() {
    let cluster = cluster_or_skip!();
    let locks = manager(&cluster).await;
    let held = locks.lock("{s}held").ttl(ms(30_000)).acquire().await.unwrap();
    for fresh in [true, false] {
        // With and without anything that the old node still has of the key.
        let key = if fresh { "{s}new" } else { "{s}old" };
        if !fresh {
            locks.lock(key).acquire().await.unwrap().release().await.unwrap();
        }
        let migration = cluster.migrate("{s}", cluster.other_primary("{s}").unwrap()).unwrap();
        let (refused, took) = timed(locks.lock(key).acquire()).await;
        assert!(matches!(refused, Err(LockError::Unavailable(_))), "{refused:?}");
        assert!(took < ms(700), "{took:?}");
        let waiting = tokio::spawn(locks.lock(key).wait(ms(20_000)).acquire());
        tokio::time::sleep(ms(600)).await;
        assert!(!waiting.is_finished());
        tokio::task::block_in_place(|| migration.finish().unwrap());
        let (lease, took) = timed(waiting).await;
        assert!(took < ms(1000), "{took:?}");
        lease.unwrap().unwrap().release().await.unwrap();
    }
    // A release in the middle goes on until it is answered.
    let migration = cluster.migrate("{s}", cluster.other_primary("{s}").unwrap()).unwrap();
    migration.move_key("distlock:{s}held").unwrap();
    assert!(matches!(held.release().await, Err(LockError::Unavailable(_))));
    tokio::task::block_in_place(|| migration.finish().unwrap());
    until("it is released", ms(6000), || !exists(&cluster, "{s}held")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_leave_a_node_cost_those_that_stay_nothing() {
    let cluster = cluster_or_skip!(|node: Builder| node.setting("cluster-require-full-coverage", "no"));
    let locks = manager(&cluster).await;
    let ttl = ms(1500);
    let mut leases = Vec::new();
    for number in 0..60 {
        leases.push(locks.lock(format!("order:{number}")).ttl(ttl).acquire().await.unwrap());
    }
    let from = cluster.primary_of("distlock:order:0").unwrap().port();
    let to = cluster.other_primary("distlock:order:0").unwrap();
    let own = |key: &str| cluster.primary_of(&format!("distlock:{key}")).unwrap().port() == from;
    let tag = (0..).map(|tag| format!("{{{tag}}}")).find(|tag| own(tag)).unwrap();
    let mut leaving = Vec::new();
    for number in 0..40 {
        leaving.push(locks.lock(format!("{tag}:{number}")).ttl(ttl).acquire().await.unwrap());
    }
    // One slot has gone, another is on its way.
    tokio::task::block_in_place(|| cluster.migrate("distlock:order:0", to).unwrap().finish().unwrap());
    let migration = cluster.migrate(&tag, to).unwrap();
    for lease in &leaving {
        migration.move_key(&format!("distlock:{}", lease.key())).unwrap();
    }
    tokio::time::sleep(ttl * 2).await;
    for lease in leases.iter().chain(&leaving) {
        assert!(lease.is_held(), "{}", lease.key());
    }
    // Now those that ask their way find nobody there.
    let stay: Vec<_> = leases.iter().filter(|lease| own(lease.key())).collect();
    assert!(stay.len() > 5);
    to.pause().unwrap();
    for lease in &leaving {
        lease.lost().await;
    }
    tokio::time::sleep(ttl).await;
    for lease in stay {
        assert!(lease.is_held(), "{}", lease.key());
    }
}

/// One key in contention.
#[derive(Debug, Default)]
struct Room {
    taken: AtomicBool,
    /// The highest fencing token so far.
    last: AtomicU64,
    visits: AtomicU64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_in_beside_anybody_while_slots_move() {
    let cluster = cluster_or_skip!();
    let keys = ["a", "b", "c"];
    let rooms = Arc::new(keys.map(|_| Room::default()));
    let ended = Arc::new(AtomicBool::new(false));
    let mut visitors = Vec::new();
    for number in 0..9 {
        let (locks, place) = (manager(&cluster).await, number % keys.len());
        let (rooms, ended, key) = (rooms.clone(), ended.clone(), keys[place]);
        visitors.push(tokio::spawn(async move {
            let room = &rooms[place];
            while !ended.load(Ordering::Acquire) {
                let visit = async |lease: &distlock::Lease| {
                    assert!(!room.taken.swap(true, Ordering::AcqRel), "`{key}` was taken twice");
                    let token = lease.fencing_token();
                    assert!(room.last.swap(token, Ordering::AcqRel) < token, "`{key}`: token {token} fell back");
                    room.visits.fetch_add(1, Ordering::AcqRel);
                    tokio::time::sleep(ms(1)).await;
                    room.taken.store(false, Ordering::Release);
                };
                locks.lock(key).ttl(ms(5000)).wait(ms(20_000)).run(visit).await.unwrap();
            }
        }));
    }
    for round in 0..6 {
        tokio::time::sleep(ms(200)).await;
        let key = format!("distlock:{}", keys[round % keys.len()]);
        let to = cluster.other_primary(&key).unwrap();
        tokio::task::block_in_place(|| cluster.migrate(&key, to).unwrap().finish().unwrap());
    }
    tokio::time::sleep(ms(200)).await;
    ended.store(true, Ordering::Release);
    for visitor in visitors {
        visitor.await.unwrap();
    }
    for (key, room) in keys.iter().zip(&*rooms) {
        let visits = room.visits.load(Ordering::Acquire);
        println!("`{key}`: {visits} visits");
        assert!(visits > 5, "`{key}`: {visits}");
    }
}

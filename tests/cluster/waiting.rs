//! Waiters are told of their turn, on the node of their key.

use std::sync::{Arc, Mutex};

use distlock_testkit::cluster_or_skip;

use crate::support::{can_tell, channels, exists, manager, ms, queued, timed, told_on_a_channel, until};

/// A message is far below this, and the next sign of life of a waiter with a ttl of 30 s far beyond.
const AT_ONCE: std::time::Duration = ms(1000);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_released_key_is_taken_at_once_on_every_node() {
    let cluster = cluster_or_skip!();
    if !can_tell(&cluster) {
        return;
    }
    let (holder, locks) = (manager(&cluster).await, manager(&cluster).await);
    let told = || cluster.nodes().iter().map(|node| node.calls("spublish").unwrap()).sum::<u64>();
    // The look that is taken at connect tries it as well.
    let before = told();
    for number in 0..12 {
        let key = format!("k{number}");
        let held = holder.lock(&*key).ttl(ms(30_000)).acquire().await.unwrap();
        let waiting = tokio::spawn(locks.lock(&*key).ttl(ms(30_000)).wait(ms(60_000)).acquire());
        queued(&cluster, &key, 1).await;
        told_on_a_channel(&cluster, &key).await;
        held.release().await.unwrap();
        let (lease, took) = timed(waiting).await;
        assert!(took < AT_ONCE, "{took:?}");
        lease.unwrap().unwrap().release().await.unwrap();
    }
    // Sharded, so that no other node is troubled, and one subscription for each node.
    for node in cluster.nodes() {
        assert_eq!(node.calls("publish").unwrap(), 0);
        let channels = node.command(&["PUBSUB", "SHARDCHANNELS"]).unwrap();
        assert!(channels.as_list().unwrap().len() <= 1, "{channels:?}");
    }
    assert_eq!(told() - before, 12);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_come_in_the_order_in_which_they_asked() {
    let cluster = cluster_or_skip!();
    let holder = manager(&cluster).await;
    let held = holder.lock("k").ttl(ms(30_000)).acquire().await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut calls = Vec::new();
    for number in 0..6 {
        let (locks, order) = (manager(&cluster).await, order.clone());
        let enter = async move { order.lock().unwrap().push(number) };
        calls.push(tokio::spawn(locks.lock("k").ttl(ms(30_000)).wait(ms(60_000)).around(enter)));
        queued(&cluster, "k", number + 1).await;
    }
    held.release().await.unwrap();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4, 5]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_connection_is_made_again_and_the_waiter_keeps_its_place() {
    let cluster = cluster_or_skip!();
    if !can_tell(&cluster) {
        return;
    }
    let (holder, locks) = (manager(&cluster).await, manager(&cluster).await);
    let held = holder.lock("k").ttl(ms(30_000)).acquire().await.unwrap();
    let waiting = tokio::spawn(locks.lock("k").ttl(ms(30_000)).wait(ms(60_000)).acquire());
    told_on_a_channel(&cluster, "k").await;
    let before = channels(&cluster, "k");
    let node = cluster.primary_of("distlock:k").unwrap();
    node.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).unwrap();
    until("it listens again", ms(3000), || {
        let now = channels(&cluster, "k");
        now != before && now.iter().all(|channel| channel != "-")
    })
    .await;
    held.release().await.unwrap();
    let (lease, took) = timed(waiting).await;
    assert!(took < AT_ONCE, "{took:?}");
    lease.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_follows_its_slot() {
    let cluster = cluster_or_skip!();
    if !can_tell(&cluster) {
        return;
    }
    let (holder, locks) = (manager(&cluster).await, manager(&cluster).await);
    let held = holder.lock("k").ttl(ms(30_000)).acquire().await.unwrap();
    let waiting = tokio::spawn(locks.lock("k").ttl(ms(30_000)).wait(ms(60_000)).acquire());
    told_on_a_channel(&cluster, "k").await;
    let before = channels(&cluster, "k");
    let to = cluster.other_primary("distlock:k").unwrap();
    tokio::task::block_in_place(|| cluster.migrate("distlock:k", to).unwrap().finish().unwrap());
    // Told by the end of its subscription, not by its next sign of life.
    until("it listens at the new node", ms(2500), || {
        let now = channels(&cluster, "k");
        now.len() == 1 && now != before && now[0] != "-"
    })
    .await;
    held.release().await.unwrap();
    let (lease, took) = timed(waiting).await;
    assert!(took < AT_ONCE, "{took:?}");
    lease.unwrap().unwrap().release().await.unwrap();
    assert!(!exists(&cluster, "k"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_listening_is_refused_waiters_look_for_themselves() {
    let cluster = cluster_or_skip!();
    for node in cluster.nodes() {
        node.command(&["ACL", "SETUSER", "default", "resetchannels"]).unwrap();
    }
    let (holder, locks) = (manager(&cluster).await, manager(&cluster).await);
    let held = holder.lock("k").ttl(ms(30_000)).acquire().await.unwrap();
    let waiting = tokio::spawn(locks.lock("k").ttl(ms(30_000)).wait(ms(60_000)).acquire());
    queued(&cluster, "k", 1).await;
    tokio::time::sleep(ms(300)).await;
    assert_eq!(channels(&cluster, "k"), ["-"]);
    held.release().await.unwrap();
    let (lease, took) = timed(waiting).await;
    assert!(took < AT_ONCE, "{took:?}");
    lease.unwrap().unwrap().release().await.unwrap();
}

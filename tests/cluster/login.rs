//! A user and a password that a provider gives, at every node, and their change while locks are held.

use std::sync::{Arc, Mutex};

use distlock::{Builder, LockError, LockManager, Login};
use distlock_testkit::{Cluster, cluster_or_skip};

use crate::support::{exists, ms, queued, told_on_a_channel, until};

/// Enough for each node to have some.
const KEYS: usize = 30;

/// Makes `app` a user of every node.
fn user(cluster: &Cluster, password: &str) {
    for node in cluster.nodes() {
        let rule = ["ACL", "SETUSER", "app", "on", "resetpass", &format!(">{password}"), "~*", "&*", "+@all"];
        node.command(&rule).unwrap();
    }
}

/// Ends every connection but those of the nodes among each other.
fn cut(cluster: &Cluster) {
    for node in cluster.nodes() {
        for kind in ["normal", "pubsub"] {
            node.command(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]).unwrap();
        }
    }
}

/// Whose provider gives what stands in the cell. The URL names nobody.
fn provided(cluster: &Cluster, password: &Arc<Mutex<&'static str>>) -> Builder {
    let cell = password.clone();
    LockManager::builder().url(cluster.url()).credentials(move || {
        let login = Login::new("app", *cell.lock().unwrap());
        async move { Ok(login) }
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_is_changed_at_all_nodes_while_leases_are_held_and_others_wait() {
    let cluster = cluster_or_skip!(|node| node.password("kit").setting("masterauth", "kit"));
    user(&cluster, "old");
    let password = Arc::new(Mutex::new("wrong"));
    let refused = provided(&cluster, &password).build().await.unwrap_err();
    assert!(matches!(refused, LockError::Permission(_)), "{refused:?}");
    assert!(refused.to_string().contains("the provider of `Builder::credentials`"), "{refused}");
    *password.lock().unwrap() = "old";
    let holder = provided(&cluster, &password).build().await.unwrap();
    let waiter = provided(&cluster, &password).build().await.unwrap();
    let mut leases = Vec::new();
    for number in 0..KEYS {
        leases.push(holder.lock(format!("k{number}")).ttl(ms(1500)).acquire().await.unwrap());
    }
    let waiting = tokio::spawn(waiter.lock("k0").wait(ms(20_000)).around(async {}));
    queued(&cluster, "k0", 1).await;
    told_on_a_channel(&cluster, "k0").await;

    user(&cluster, "new");
    *password.lock().unwrap() = "new";
    cut(&cluster);
    tokio::time::sleep(ms(3000)).await;
    assert!(leases.iter().all(|lease| lease.is_held()), "a lease did not survive the change");
    queued(&cluster, "k0", 1).await;
    for lease in leases.drain(1..) {
        // It goes on in the background where the connection was not used since it was cut.
        let _ = lease.release().await;
    }
    until("the keys are gone", ms(1000), || (1..KEYS).all(|number| !exists(&cluster, &format!("k{number}")))).await;

    // A node that was none of the primaries before.
    let old = cluster.primary_of("distlock:k0").unwrap();
    let replica = cluster.replica_of("distlock:k0").unwrap();
    assert_eq!(old.command(&["WAIT", "1", "2000"]).unwrap().as_int(), Some(1));
    user(&cluster, "third");
    *password.lock().unwrap() = "third";
    old.kill().unwrap();
    until("the replica takes over", ms(10_000), || {
        cluster.primary_of("distlock:k0").is_ok_and(|node| node.port() == replica.port())
    })
    .await;
    holder.lock("{distlock:k0}:other").wait(ms(5000)).run(async |_| ()).await.unwrap();
    drop(leases);
    waiting.await.unwrap().unwrap();
    until("the key is gone", ms(5000), || !exists(&cluster, "k0")).await;
}

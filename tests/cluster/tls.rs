//! Encrypted connections to every node.

use std::collections::BTreeSet;

use distlock::{LockError, LockManager, Release, Tls};
use distlock_testkit::{Certificates, cluster_or_skip};

use crate::support::{exists, ms, until};

/// Enough for each node to have some.
const KEYS: usize = 30;

#[tokio::test]
async fn locks_of_all_nodes_work_over_tls_and_none_goes_in_the_clear() {
    let certificates = Certificates::new().unwrap();
    let cluster = cluster_or_skip!(|node| node.tls(&certificates));
    let url = cluster.tls_url().unwrap();
    let refused = LockManager::builder().url(&url).tls(Tls::new()).build().await.unwrap_err();
    assert!(matches!(refused, LockError::Config(_)) && refused.to_string().contains("ca_file"), "{refused:?}");
    let locks = LockManager::builder().url(&url).tls(Tls::new().ca_pem(certificates.ca_pem())).build().await.unwrap();
    let mut leases = Vec::new();
    for number in 0..KEYS {
        leases.push(locks.lock(format!("k{number}")).ttl(ms(900)).acquire().await.unwrap());
    }
    let nodes: BTreeSet<u16> =
        (0..KEYS).map(|number| cluster.primary_of(&format!("distlock:k{number}")).unwrap().port()).collect();
    assert_eq!(nodes.len(), 3);
    let waiting = tokio::spawn(locks.lock("k0").wait(ms(5000)).around(async {}));
    tokio::time::sleep(ms(1800)).await;
    assert!(leases.iter().all(|lease| lease.is_held()), "not renewed");
    // Whoever runs scripts is at the port for TLS.
    let mut encrypted = 0;
    for node in cluster.nodes() {
        let clients = node.command(&["CLIENT", "LIST"]).unwrap();
        let own = clients.as_text().unwrap().lines().filter(|client| client.contains("cmd=evalsha"));
        let clear = format!("laddr=127.0.0.1:{} ", node.port());
        for client in own {
            assert!(client.contains(" laddr=") && !client.contains(&clear), "{client}");
            encrypted += 1;
        }
    }
    assert!(encrypted >= 3, "{encrypted}");
    for lease in leases {
        assert_eq!(lease.release().await.unwrap(), Release::Released);
    }
    waiting.await.unwrap().unwrap();
    until("the key is gone", ms(1000), || !exists(&cluster, "k0")).await;
}

//! What cannot work is refused early, and says what to do.

use distlock::{LockError, LockManager, distributed_lock};
use distlock_testkit::{Builder, Server, cluster_or_skip, server_or_skip};

use crate::support::{manager, ms, names, timed};

fn config(refused: Result<LockManager, LockError>) -> String {
    match refused {
        Err(LockError::Config(config)) => config.to_string(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn keys_of_different_slots_are_no_lock_and_nothing_is_sent() {
    let cluster = cluster_or_skip!();
    let locks = manager(&cluster).await;

    #[distributed_lock(keys = ["stock:{shop}", "till:{shop}"], manager = locks)]
    async fn close(locks: &LockManager, shop: u32) -> Result<(), LockError> {
        panic!("it ran")
    }

    let Err(LockError::InvalidKey(refused)) = close(&locks, 7).await else { panic!("not refused") };
    assert!(refused.to_string().contains("hash tag"), "{refused}");
    assert!(names(&cluster).is_empty());
}

#[tokio::test]
async fn a_server_that_is_no_cluster_is_named_with_the_url_for_it() {
    let server = server_or_skip!();
    let url = server.url().replace("redis://", "redis+cluster://");
    let text = config(LockManager::connect(url).await);
    assert!(text.contains(&server.url()), "{text}");
}

#[tokio::test]
async fn a_plain_url_at_a_cluster_is_told_the_right_one() {
    let cluster = cluster_or_skip!();
    for node in cluster.nodes() {
        let locks = LockManager::connect(node.url()).await.unwrap();
        let Err(LockError::Config(config)) = locks.lock("k").acquire().await else { panic!("not refused") };
        assert!(config.to_string().contains("redis+cluster://"), "{config}");
    }
}

#[tokio::test]
async fn nodes_that_are_down_do_not_keep_others_from_being_asked() {
    let cluster = cluster_or_skip!();
    let silent_one = server_or_skip!();
    silent_one.pause().unwrap();
    // The first takes connections and is silent; the second refuses; the third is one of them, and names the others.
    let (silent, port) = (silent_one.port(), cluster.nodes()[1].port());
    let url = format!("valkey+cluster://127.0.0.1:{silent},127.0.0.1:1,localhost:{port}");
    let (locks, took) = timed(LockManager::connect(url)).await;
    let locks = locks.unwrap();
    assert!(took < ms(900), "{took:?}");
    for key in ["a", "b", "c", "d"] {
        locks.lock(key).acquire().await.unwrap().release().await.unwrap();
    }
    let (nobody, took) = timed(LockManager::connect("redis+cluster://127.0.0.1:1,127.0.0.1:2")).await;
    assert!(matches!(nobody, Err(LockError::Unavailable(_))), "{nobody:?}");
    assert!(took < ms(1200), "{took:?}");
}

#[tokio::test]
async fn a_node_that_was_reset_does_not_speak_for_the_others() {
    let cluster = cluster_or_skip!();
    let reset = server_or_skip!(Server::builder().setting("cluster-enabled", "yes"));
    let url = format!("redis+cluster://127.0.0.1:{},127.0.0.1:{}", reset.port(), cluster.nodes()[0].port());
    let locks = LockManager::connect(url).await.unwrap();
    locks.lock("k").acquire().await.unwrap().release().await.unwrap();
    // Where nobody knows better, it is told what it lacks.
    let error = LockManager::connect(reset.url().replace("://", "+cluster://")).await.unwrap_err();
    assert!(matches!(error, LockError::Unavailable(_)), "{error:?}");
    assert!(error.to_string().contains("add-node"), "{error}");
}

#[tokio::test]
async fn nodes_that_do_not_know_their_names_are_where_they_were_asked() {
    let cluster = cluster_or_skip!();
    for node in cluster.nodes() {
        // As behind a load balancer for each node. Known from 7.0 on.
        let nameless = ["CONFIG", "SET", "cluster-preferred-endpoint-type", "unknown-endpoint"];
        if node.command(&nameless).is_err() {
            eprintln!("SKIPPED: nodes of this server always name a host");
            return;
        }
    }
    let locks = LockManager::connect(cluster.url()).await.unwrap();
    for key in ["a", "b", "c", "d"] {
        locks.lock(key).acquire().await.unwrap().release().await.unwrap();
    }
    // MOVED without a host, too.
    let to = cluster.other_primary("distlock:a").unwrap();
    cluster.migrate("distlock:a", to).unwrap().finish().unwrap();
    locks.lock("a").acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_wrong_password_is_a_refused_login() {
    let cluster = cluster_or_skip!(|node: Builder| node.password("right").setting("masterauth", "right"));
    let right = cluster.url().replace("://", "://:right@");
    let locks = LockManager::connect(right).await.unwrap();
    for key in ["a", "b", "c", "d"] {
        locks.lock(key).acquire().await.unwrap().release().await.unwrap();
    }
    let refused = LockManager::connect(cluster.url().replace("://", "://:wrong@")).await.unwrap_err();
    assert!(matches!(refused, LockError::Permission(_)), "{refused:?}");
    assert!(!refused.to_string().contains("wrong@"), "{refused}");
}

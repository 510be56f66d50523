//! The doctor on a cluster, and the rule of permissions that the guide gives for one.

use distlock::{Finding, FindingKind, LockManager, Severity};
use distlock_testkit::{Cluster, Server, cluster_or_skip};

use crate::support::{can_tell, manager, ms, told_on_a_channel};

/// The rule in `docs/operations.md`, word by word, behind the user's name, and what it says that a cluster takes beside it.
fn documented_rule() -> (Vec<String>, Vec<String>) {
    let guide = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/operations.md")).unwrap();
    let words = |before: &str| -> Vec<String> {
        let (_, rest) = guide.split_once(before).unwrap();
        let (rule, _) = rest.split_once("```").unwrap();
        rule.split_whitespace().filter(|word| *word != "\\" && !word.starts_with('>')).map(str::to_owned).collect()
    };
    (words("ACL SETUSER app on >PASSWORD"), words("# in a Cluster, beside that\nACL SETUSER app "))
}

/// The URL for a new user with these words.
fn as_user(cluster: &Cluster, name: &str, words: &[&String]) -> String {
    let words = words.iter().map(|word| word.as_str());
    let rule: Vec<&str> = ["ACL", "SETUSER", name, "on", ">p"].into_iter().chain(words).collect();
    for node in cluster.nodes() {
        node.command(&rule).unwrap();
    }
    cluster.url().replace("://", &format!("://{name}:p@"))
}

/// Everything but remarks.
async fn findings(locks: &LockManager) -> Vec<Finding> {
    let mut findings = locks.doctor().await.unwrap();
    findings.retain(|finding| finding.severity() > Severity::Note);
    findings
}

fn address(node: &Server) -> String {
    format!("127.0.0.1:{}", node.port())
}

#[tokio::test]
async fn each_primary_is_looked_at_and_nothing_else_is_a_fault() {
    let cluster = cluster_or_skip!();
    if !can_tell(&cluster) {
        return;
    }
    let all = manager(&cluster).await.doctor().await.unwrap();
    let has_replicas = |finding: &&Finding| finding.kind() == FindingKind::UnacknowledgedReplicas;
    assert_eq!(all.iter().filter(has_replicas).count(), 3, "{all:?}");
    let with_acks = |replicas| LockManager::builder().url(cluster.url()).replica_acks(replicas, ms(300)).build();
    let found = findings(&with_acks(2).await.unwrap()).await;
    assert!(found.len() == 3 && found.iter().all(|it| it.kind() == FindingKind::TooFewReplicas), "{found:?}");
    let locks = with_acks(1).await.unwrap();
    assert_eq!(findings(&locks).await, []);
    let one = cluster.primary_of("distlock:k").unwrap();
    one.command(&["CONFIG", "SET", "maxmemory", "100mb"]).unwrap();
    one.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).unwrap();
    let found = findings(&locks).await;
    let told: Vec<_> = found.iter().map(|finding| (finding.kind(), finding.node())).collect();
    assert_eq!(told, [(FindingKind::Eviction, &*address(one))]);
    // What was tried is nowhere.
    assert!(crate::support::names(&cluster).is_empty());
}

#[tokio::test]
async fn the_documented_rule_is_enough_and_each_word_that_is_missing_is_named() {
    let cluster = cluster_or_skip!();
    if !can_tell(&cluster) {
        return;
    }
    let (rule, mut beside) = documented_rule();
    assert_eq!(beside.len(), 4, "{beside:?}");
    beside.push("+wait".to_owned());
    let url = as_user(&cluster, "app", &rule.iter().chain(&beside).collect::<Vec<_>>());
    let build = |url: String| LockManager::builder().url(url).replica_acks(1, ms(400));
    let (locks, others) = (build(url.clone()).build().await.unwrap(), build(url).build().await.unwrap());
    assert_eq!(findings(&locks).await, []);
    let held = locks.lock("k").ttl(ms(600)).acquire().await.unwrap();
    let waiting = tokio::spawn(others.lock("k").wait(ms(20_000)).acquire());
    told_on_a_channel(&cluster, "k").await;
    let migration = cluster.migrate("distlock:k", cluster.other_primary("distlock:k").unwrap()).unwrap();
    migration.move_key("distlock:k").unwrap();
    tokio::time::sleep(ms(1200)).await;
    assert!(held.is_held());
    migration.finish().unwrap();
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();

    // Two that a cluster does without are in the rule for all.
    let needed = rule.iter().chain(&beside).filter(|word| word.starts_with('+'));
    for (number, missing) in needed.filter(|word| !["+publish", "+subscribe"].contains(&word.as_str())).enumerate() {
        let rest: Vec<_> = rule.iter().chain(&beside).filter(|word| *word != missing).collect();
        let url = as_user(&cluster, &format!("user-{number}"), &rest);
        // Without the map, nobody can connect: the nodes of the URL are asked then.
        let locks = build(url).lazy().build().await.unwrap();
        let found = findings(&locks).await;
        let named = format!("`{missing}`");
        assert!(!found.is_empty(), "without {missing}");
        assert!(found.iter().all(|finding| finding.fix().contains(&named)), "without {missing}: {found:?}");
    }
}

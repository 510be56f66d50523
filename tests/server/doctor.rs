//! The doctor, on servers that have what it looks for; and the rule of permissions that the guide gives.

use distlock::{Finding, FindingKind, LockError, LockManager, Release, Severity};
use distlock_testkit::{Reply, Server, server_or_skip};

use crate::support::{ask, manager, ms, queued, until};

/// The rule in `docs/operations.md`, word by word, behind the user's name, with the key patterns once more for the namespace
/// of this program's lock set, as the guide says.
fn documented_rule() -> Vec<String> {
    let guide = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/operations.md")).unwrap();
    let (_, rest) = guide.split_once("ACL SETUSER app ").unwrap();
    let (rule, _) = rest.split_once("```").unwrap();
    let words: Vec<_> = rule.split_whitespace().filter(|word| *word != "\\").map(str::to_owned).collect();
    let of_set = words.iter().filter(|word| word.starts_with('~')).map(|word| word.replace("distlock", "billing"));
    let of_set: Vec<_> = of_set.collect();
    words.into_iter().chain(of_set).collect()
}

/// A manager of a new user with this rule.
async fn as_user(server: &Server, name: &str, rule: &[String]) -> LockManager {
    let mut parts = vec!["ACL", "SETUSER", name, "on", ">p"];
    parts.extend(rule.iter().map(String::as_str).filter(|word| *word != "on" && !word.starts_with('>')));
    ask(server, &parts);
    LockManager::connect(format!("redis://{name}:p@127.0.0.1:{}", server.port())).await.unwrap()
}

/// Everything but remarks.
async fn findings(locks: &LockManager) -> Vec<Finding> {
    let mut findings = locks.doctor().await.unwrap();
    findings.retain(|finding| finding.severity() > Severity::Note);
    findings
}

fn kinds(findings: &[Finding]) -> Vec<FindingKind> {
    findings.iter().map(Finding::kind).collect()
}

#[tokio::test]
async fn a_healthy_server_has_nothing_but_remarks_and_keeps_nothing_of_the_look() {
    let server = server_or_skip!(Server::builder().append_only());
    let locks = manager(&server).await;
    assert_eq!(locks.doctor().await.unwrap(), []);
    let Reply::List(keys) = ask(&server, &["KEYS", "*"]) else { panic!("no keys") };
    assert_eq!(keys, []);
    locks.lock("k").run(async |_| ()).await.unwrap();
    assert_eq!(locks.doctor().await.unwrap(), []);
    locks.shutdown(ms(1000)).await;
    assert!(matches!(locks.doctor().await.unwrap_err(), LockError::Closed(_)));
    let memory = LockManager::in_memory();
    assert_eq!(memory.doctor().await.unwrap(), []);
}

#[tokio::test]
async fn the_documented_rule_is_enough_for_everything() {
    let server = server_or_skip!();
    let locks = as_user(&server, "app", &documented_rule()).await;
    assert_eq!(findings(&locks).await, []);
    let look = locks.doctor().await.unwrap();
    assert_eq!(kinds(&look), [FindingKind::CannotLook]);
    assert!(look[0].fix().contains("+info"), "{}", look[0]);

    let other = LockManager::connect(format!("redis://app:p@127.0.0.1:{}", server.port())).await.unwrap();
    let lease = locks.lock("k").ttl(ms(900)).acquire().await.unwrap();
    let waiting = tokio::spawn(other.lock("k").wait(ms(10_000)).around(async {}));
    queued(&server, "k", 1).await;
    let waiter = ask(&server, &["HVALS", "{distlock:k}:waiters"]);
    assert!(waiter.as_list().unwrap()[0].as_text().unwrap().contains("distlock:turn:"), "it polls: {waiter:?}");
    tokio::time::sleep(ms(1200)).await;
    lease.extend(ms(5000)).await.unwrap();
    assert_eq!(lease.release().await.unwrap(), Release::Released);
    waiting.await.unwrap().unwrap();
    locks.lock("kept").min_hold(ms(100)).run(async |_| ()).await.unwrap();
    locks.lock("{shop:7}:coupon").wait(ms(100)).run(async |_| ()).await.unwrap();
    let calls: Vec<_> = (0..64).map(|n| tokio::spawn(locks.lock(format!("many:{n}")).around(async {}))).collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    // A call that is given up while its command is under way buries its token.
    server.pause().unwrap();
    let given_up = tokio::time::timeout(ms(50), locks.lock("b").acquire()).await;
    assert!(given_up.is_err());
    server.resume().unwrap();
    let burials = || ask(&server, &["KEYS", "*:gone:*"]) != Reply::List(Vec::new());
    until("the token is buried", ms(3000), burials).await;
}

#[tokio::test]
async fn the_documented_rule_is_enough_for_several_servers() {
    let servers = distlock_testkit::servers_or_skip!(3);
    let mut urls = Vec::new();
    let guide = include_str!("../../docs/operations.md");
    assert!(
        guide.contains("without it a server that comes back with older data is not noticed\nACL SETUSER app +info\n")
    );
    let rule = [documented_rule(), vec!["+info".to_owned()]].concat();
    for server in &servers {
        as_user(server, "app", &rule).await;
        urls.push(format!("redis://app:p@127.0.0.1:{}", server.port()));
    }
    let redlock = || LockManager::builder().redlock(urls.clone()).max_ttl(ms(60_000)).quarantine(true);
    let (locks, other) = (redlock().build().await.unwrap(), redlock().build().await.unwrap());
    locks.bootstrap().await.unwrap();
    assert_eq!(findings(&locks).await, []);
    let lease = locks.lock("k").ttl(ms(900)).acquire().await.unwrap();
    let waiting = tokio::spawn(other.lock("k").wait(ms(10_000)).around(async {}));
    tokio::time::sleep(ms(1200)).await;
    lease.extend(ms(5000)).await.unwrap();
    // One that has lost its key gets it back.
    ask(&servers[0], &["DEL", "distlock:k"]);
    until("the lease heals", ms(3000), || ask(&servers[0], &["EXISTS", "distlock:k"]).as_int() == Some(1)).await;
    assert_eq!(lease.release().await.unwrap(), Release::Released);
    waiting.await.unwrap().unwrap();
    assert_eq!(findings(&locks).await, []);

    // Without it a restart is not seen, which is not needed for locking.
    for server in &servers {
        ask(server, &["ACL", "SETUSER", "app", "-info"]);
    }
    let found = findings(&locks).await;
    assert_eq!(kinds(&found), [FindingKind::Permission; 3], "{found:?}");
    assert!(found[0].severity() == Severity::Warning && found[0].fix() == "add `+info` to its rule", "{}", found[0]);
    locks.lock("k").run(async |_| ()).await.unwrap();
    let other = redlock().build().await.unwrap();
    for server in &servers {
        ask(server, &["FLUSHALL"]);
    }
    assert!(matches!(other.lock("k").acquire().await, Err(LockError::NoQuorum(_))));
    other.bootstrap().await.unwrap();
    other.lock("k").run(async |_| ()).await.unwrap();
    // Who may ask takes an epoch of nobody's run for an older one.
    for server in &servers {
        ask(server, &["ACL", "SETUSER", "app", "+info"]);
    }
    assert!(matches!(locks.lock("k").acquire().await, Err(LockError::NoQuorum(_))));
}

#[tokio::test]
async fn each_permission_that_is_missing_is_named_and_no_other() {
    let server = server_or_skip!();
    let rule = documented_rule();
    let needed: Vec<&String> = rule.iter().filter(|word| "~&+".contains(&word[..1])).collect();
    assert!(needed.len() > 20, "{needed:?}");
    let server = std::sync::Arc::new(server);
    let looks = needed.into_iter().enumerate().map(|(number, missing)| {
        let rest: Vec<String> = rule.iter().filter(|word| *word != missing).cloned().collect();
        let (server, missing) = (server.clone(), missing.clone());
        tokio::spawn(async move {
            let locks = as_user(&server, &format!("user-{number}"), &rest).await;
            let found = findings(&locks).await;
            assert_eq!(found.len(), 1, "without {missing}: {found:?}");
            assert!(found[0].fix().contains(&format!("`{missing}`")), "without {missing}: {}", found[0]);
        })
    });
    for look in looks.collect::<Vec<_>>() {
        look.await.unwrap();
    }
}

#[tokio::test]
async fn locks_that_replicas_acknowledge_take_one_word_more() {
    let server = server_or_skip!();
    let guide = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/operations.md")).unwrap();
    assert!(guide.contains("# with `replica_acks`, beside that\nACL SETUSER app +wait\n"));
    let mut rule = documented_rule();
    as_user(&server, "app", &rule).await;
    let url = format!("redis://app:p@127.0.0.1:{}", server.port());
    let locks = LockManager::builder().url(url).replica_acks(1, ms(100)).build().await.unwrap();
    let found = findings(&locks).await;
    assert_eq!(kinds(&found), [FindingKind::Permission], "{found:?}");
    assert!(found[0].fix().contains("`+wait`"), "{}", found[0]);
    let refused = locks.lock("k").acquire().await.unwrap_err();
    assert!(matches!(refused, LockError::Permission(_)), "{refused:?}");
    rule.push("+wait".to_owned());
    as_user(&server, "app", &rule).await;
    assert_eq!(findings(&locks).await, []);
    // Allowed, and nobody there.
    let alone = locks.lock("k").acquire().await.unwrap_err();
    assert!(matches!(alone, LockError::Unavailable(_)), "{alone:?}");
}

#[tokio::test]
async fn keys_that_may_only_be_read_are_told() {
    let server = server_or_skip!();
    if server.command(&["ACL", "SETUSER", "probe", "%R~x"]).is_err() {
        return; // before 7.0, keys may be used or not
    }
    let rule = documented_rule();
    for pattern in rule.iter().filter(|word| word.starts_with('~')) {
        let poor: Vec<String> =
            rule.iter().map(|word| if word == pattern { format!("%R{word}") } else { word.clone() }).collect();
        let found = findings(&as_user(&server, "app", &poor).await).await;
        assert_eq!(found.len(), 1, "{pattern}: {found:?}");
        assert!(found[0].fix().contains(&format!("`{pattern}`")), "{pattern}: {}", found[0]);
    }
}

#[tokio::test]
async fn a_user_who_may_set_and_get_alone_gets_no_lock_that_nobody_could_release() {
    let server = server_or_skip!();
    let rule = ["~distlock:*", "~{distlock*", "-@all", "+get", "+set"].map(str::to_owned);
    let locks = as_user(&server, "poor", &rule).await;
    let error = locks.lock("k").acquire().await.unwrap_err();
    assert!(matches!(error, LockError::Permission(_)), "{error:?}");
    assert!(error.to_string().contains("EVALSHA") && error.to_string().contains("doctor"), "{error}");
    assert!(ask(&server, &["GET", "distlock:k"]).is_nil());
    let found = findings(&locks).await;
    assert!(kinds(&found).contains(&FindingKind::Scripts), "{found:?}");
    assert_eq!(found[0].severity(), Severity::Problem);
}

#[tokio::test]
async fn what_a_server_tells_of_itself_is_judged() {
    let server = server_or_skip!(Server::builder().setting("maxmemory", "100mb"));
    let locks = manager(&server).await;
    assert_eq!(findings(&locks).await, []);
    assert_eq!(kinds(&locks.doctor().await.unwrap()), [FindingKind::Amnesia]);
    for policy in ["volatile-lru", "volatile-ttl", "volatile-random", "allkeys-lru", "allkeys-random"] {
        ask(&server, &["CONFIG", "SET", "maxmemory-policy", policy]);
        let found = findings(&locks).await;
        assert_eq!(kinds(&found), [FindingKind::Eviction], "{policy}");
        assert!(found[0].to_string().contains(policy), "{}", found[0]);
    }
    ask(&server, &["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(findings(&locks).await, []);

    let port = server.port().to_string();
    let replica = server_or_skip!();
    ask(&replica, &["REPLICAOF", "127.0.0.1", &port]);
    until("the replica is there", ms(10_000), || {
        ask(&server, &["INFO", "replication"]).as_text().unwrap().contains("connected_slaves:1")
    })
    .await;
    assert_eq!(kinds(&findings(&locks).await), [FindingKind::UnacknowledgedReplicas]);
    let beside = manager(&replica).await;
    assert_eq!(kinds(&findings(&beside).await), [FindingKind::Replica]);

    let node = server_or_skip!(Server::builder().setting("cluster-enabled", "yes"));
    let found = findings(&manager(&node).await).await;
    assert_eq!(kinds(&found), [FindingKind::ClusterMismatch], "{found:?}");
}

#[tokio::test]
async fn a_command_that_the_server_does_not_have_is_told_as_such() {
    let server = server_or_skip!(Server::builder().setting("rename-command PUBLISH", "publish-of-ours"));
    let found = findings(&manager(&server).await).await;
    assert_eq!(kinds(&found), [FindingKind::WakeUps], "{found:?}");
    assert!(found[0].to_string().contains("`PUBLISH` is not known"), "{}", found[0]);
}

#[tokio::test]
async fn faults_between_several_servers_are_seen() {
    let (one, other) = (server_or_skip!(), server_or_skip!(Server::builder().append_only()));
    let by_name = one.url().replace("127.0.0.1", "localhost");
    let locks = LockManager::builder().redlock([one.url(), by_name, other.url()]).build().await.unwrap();
    let found = findings(&locks).await;
    assert_eq!(kinds(&found), [FindingKind::SameServer, FindingKind::Amnesia, FindingKind::Amnesia], "{found:?}");
    assert!(found[0].to_string().contains("127.0.0.1") && found[0].to_string().contains("localhost"), "{}", found[0]);
    other.kill().unwrap();
    let found = findings(&locks).await;
    assert!(kinds(&found).contains(&FindingKind::Unreachable), "{found:?}");
    let careful =
        LockManager::builder().redlock([one.url()]).quarantine(true).max_ttl(ms(60_000)).build().await.unwrap();
    careful.bootstrap().await.unwrap();
    assert_eq!(careful.doctor().await.unwrap(), []);
}

#[tokio::test]
async fn a_server_that_is_gone_is_an_error_and_no_finding() {
    let server = server_or_skip!();
    let locks = manager(&server).await;
    server.kill().unwrap();
    assert!(matches!(locks.doctor().await.unwrap_err(), LockError::Unavailable(_)));
}

#[tokio::test]
async fn a_frozen_server_is_noticed_by_whoever_only_looks() {
    let server = server_or_skip!();
    let locks = manager(&server).await;
    server.pause().unwrap();
    // Two answers are missing then, so that the connection is given up, and the next look begins with a new one.
    for said in ["no answer from", "no answer from", "no connection"] {
        let error = locks.doctor().await.unwrap_err();
        assert!(matches!(error, LockError::Unavailable(_)) && error.to_string().contains(said), "{said}: {error}");
    }
    server.resume().unwrap();
    assert_eq!(findings(&locks).await, []);
}

#[tokio::test]
async fn several_servers_without_a_majority_are_a_problem() {
    let servers = distlock_testkit::servers_or_skip!(3);
    ask(&servers[0], &["CONFIG", "SET", "requirepass", "kit"]);
    let urls = [
        format!("redis://:wrong@127.0.0.1:{}", servers[0].port()),
        servers[1].url(),
        servers[2].url().replace("redis://", "redis://app:p@"),
    ];
    ask(&servers[2], &["ACL", "SETUSER", "app", "on", ">p", "+@all", "~*", "&*"]);
    let locks = LockManager::builder().redlock(urls).build().await.unwrap();
    let found = findings(&locks).await;
    let refused = found.iter().find(|it| it.kind() == FindingKind::Permission).unwrap();
    assert!(refused.node().ends_with(&servers[0].port().to_string()), "{refused}");
    assert!(refused.what().contains("password") && refused.fix().contains("redis://user:password@host"), "{refused}");
    assert!(!refused.to_string().contains("bring it back") && !refused.to_string().contains("wrong@"), "{refused}");
    servers[2].kill().unwrap();
    let found = findings(&locks).await;
    let gone = found.iter().find(|it| it.kind() == FindingKind::Unreachable).unwrap();
    assert_eq!(gone.severity(), Severity::Problem, "{gone}");
    assert!(gone.to_string().starts_with("problem: ") && gone.fix().contains("it takes 2"), "{gone}");
}

#[tokio::test]
async fn two_databases_of_one_server_are_shown_as_such() {
    let server = server_or_skip!();
    let urls = [format!("{}/1", server.url()), format!("{}/2", server.url())];
    let locks = LockManager::builder().redlock(urls).build().await.unwrap();
    let found = locks.doctor().await.unwrap();
    let same = found.iter().find(|it| it.kind() == FindingKind::SameServer).unwrap().to_string();
    assert!(same.contains(&format!("{0}/2: it is the same server as 127.0.0.1:{0}/1", server.port())), "{same}");
    assert!(kinds(&found).contains(&FindingKind::EvenServers), "{found:?}");
}

#[tokio::test]
async fn servers_in_quarantine_are_told() {
    let server = || Server::builder().append_only();
    let servers = [server_or_skip!(server()), server_or_skip!(server()), server_or_skip!(server())];
    let urls: Vec<_> = servers.iter().map(Server::url).collect();
    let locks = LockManager::builder().redlock(urls).quarantine(true).max_ttl(ms(60_000)).build().await.unwrap();
    let found = findings(&locks).await;
    assert_eq!(kinds(&found), [FindingKind::Quarantine; 3], "{found:?}");
    assert!(found[0].severity() == Severity::Problem && found[0].fix().contains("bootstrap"), "{}", found[0]);
    locks.bootstrap().await.unwrap();
    assert_eq!(findings(&locks).await, []);
    ask(&servers[1], &["FLUSHALL"]);
    let found = findings(&locks).await;
    assert_eq!(kinds(&found), [FindingKind::Quarantine]);
    assert_eq!(found[0].severity(), Severity::Warning);
    // The first question to vote begins its time.
    locks.lock("k").run(async |_| ()).await.unwrap();
    until("it was asked", ms(3000), || ask(&servers[1], &["EXISTS", "{distlock}:epoch"]).as_int() == Some(1)).await;
    let found = findings(&locks).await;
    assert!(found[0].what().contains("another 60 s") || found[0].what().contains("another 59 s"), "{}", found[0]);
}

#[tokio::test]
async fn a_server_that_takes_no_writes_now_is_a_problem() {
    let server = server_or_skip!(Server::builder().append_only());
    let locks = manager(&server).await;
    let cases = [("maxmemory", "1", "0", "maxmemory"), ("min-replicas-to-write", "1", "0", "min-replicas-to-write")];
    for (setting, bad, good, advice) in cases {
        ask(&server, &["CONFIG", "SET", setting, bad]);
        let found = findings(&locks).await;
        assert_eq!(kinds(&found), [FindingKind::WritesRefused], "{found:?}");
        assert_eq!(found[0].severity(), Severity::Problem);
        assert!(found[0].fix().contains(advice), "{}", found[0]);
        let error = locks.lock("k").acquire().await.unwrap_err();
        assert!(matches!(error, LockError::Unavailable(_)) && error.to_string().contains(advice), "{error}");
        ask(&server, &["CONFIG", "SET", setting, good]);
        assert_eq!(findings(&locks).await, []);
    }
}

#[tokio::test]
async fn fewer_replicas_than_must_acknowledge_are_told() {
    let server = server_or_skip!(Server::builder().append_only());
    let locks = LockManager::builder().url(server.url()).replica_acks(2, ms(100)).build().await.unwrap();
    let found = findings(&locks).await;
    assert_eq!(kinds(&found), [FindingKind::TooFewReplicas], "{found:?}");
    assert_eq!(found[0].severity(), Severity::Problem);
}

#[tokio::test]
async fn a_sentinel_is_called_one() {
    let sentinels = distlock_testkit::sentinels_or_skip!();
    let sentinel = &sentinels.sentinels()[0];
    let locks = LockManager::connect(format!("redis://127.0.0.1:{}", sentinel.port())).await.unwrap();
    let found = locks.doctor().await.unwrap();
    assert_eq!(kinds(&found), [FindingKind::Sentinel], "{found:?}");
    let error = locks.lock("k").acquire().await.unwrap_err();
    assert!(matches!(error, LockError::Config(_)) && error.to_string().contains("redis+sentinel://"), "{error}");
}

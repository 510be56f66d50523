//! What a stranger may try, on a real server; docs/security.md has the table.

use std::collections::BTreeSet;
use std::path::Path;

use distlock::{LockError, LockManager, LossCause};
use distlock_testkit::{Reply, Server, server_or_skip};

use crate::support::{ask, exists, manager, ms, until};

fn token(server: &Server, key: &str) -> String {
    let Reply::Text(value) = ask(server, &["GET", key]) else { panic!("nobody holds `{key}`") };
    value[..36].to_owned()
}

/// The path of every test in the Rust files below a folder, as in `folder::module::tests::a_name`.
fn tests_below(folder: &Path, path: &str, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().path();
        let name = file.file_stem().unwrap().to_str().unwrap();
        let own = match name {
            "lib" | "main" | "mod" => path.to_owned(),
            _ if path.is_empty() => name.to_owned(),
            _ => format!("{path}::{name}"),
        };
        if file.is_dir() {
            tests_below(&file, &own, found);
        } else if file.extension().is_some_and(|extension| extension == "rs") {
            found.extend(tests_in(&std::fs::read_to_string(&file).unwrap()).map(|test| format!("{own}::{test}")));
        }
    }
}

/// The tests of one file, each with the module of this file that it is in.
fn tests_in(text: &str) -> impl Iterator<Item = String> {
    let (mut module, mut is_test) = ("", false);
    text.lines().filter_map(move |line| {
        match line.strip_prefix("mod ").and_then(|rest| rest.strip_suffix(" {")) {
            Some(name) => module = name,
            None if line == "}" => module = "",
            None => {}
        }
        let line = line.trim_start();
        is_test |= line == "#[test]" || line.starts_with("#[tokio::test");
        let (_, name) = line.split_once("fn ").filter(|_| is_test)?;
        is_test = false;
        let (name, _) = name.split_once('(')?;
        Some(if module.is_empty() { name.to_owned() } else { format!("{module}::{name}") })
    })
}

#[test]
fn the_tests_that_the_table_of_threats_names_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let guide = std::fs::read_to_string(root.join("docs/security.md")).unwrap();
    let mut tests = BTreeSet::new();
    for folder in ["tests", "distlock-runtime/src"] {
        tests_below(&root.join(folder), "", &mut tests);
    }
    assert!(tests.len() > 400, "{}", tests.len());
    let names = guide.split('`').filter(|word| word.contains("::") && !word.contains(['…', '(', ' ']));
    let names: Vec<&str> = names.filter(|word| !word.starts_with(char::is_uppercase)).collect();
    assert!(names.len() > 20, "{names:?}");
    for name in names {
        let is_there = match name.strip_suffix('*') {
            Some(module) => tests.iter().any(|test| test.starts_with(module)),
            None => tests.contains(name),
        };
        assert!(is_there, "`{name}` is not there");
    }
}

#[tokio::test]
async fn no_attempt_has_the_token_of_another_and_none_can_be_guessed() {
    let server = server_or_skip!();
    let locks = manager(&server).await;
    let mut tokens = BTreeSet::new();
    for _ in 0..100 {
        let lease = locks.lock("k").acquire().await.unwrap();
        tokens.insert(token(&server, "distlock:k"));
        lease.release().await.unwrap();
    }
    assert_eq!(tokens.len(), 100);
    // 122 bits of the system's generator: a UUID of version 4. Every digit but those that say so differs somewhere.
    assert!(tokens.iter().all(|token| token[14..15] == *"4"), "{tokens:?}");
    for place in (0..36).filter(|place| ![8, 13, 14, 18, 23].contains(place)) {
        let digits: BTreeSet<&str> = tokens.iter().map(|token| &token[place..=place]).collect();
        assert!(digits.len() >= 4, "place {place}: {digits:?}");
    }
}

#[tokio::test]
async fn a_key_that_is_evicted_is_a_lost_lease_at_the_next_renewal() {
    let server = server_or_skip!();
    let locks = manager(&server).await;
    ask(&server, &["CONFIG", "SET", "maxmemory", "8mb"]);
    ask(&server, &["CONFIG", "SET", "maxmemory-policy", "volatile-ttl"]);
    let lease = locks.lock("k").ttl(ms(900)).acquire().await.unwrap();
    let filler = "x".repeat(100_000);
    let mut number = 0;
    until("the key is evicted", ms(5000), || {
        number += 1;
        let _ = server.command(&["SET", &format!("other:{number}"), &filler]);
        !exists(&server, "distlock:k")
    })
    .await;
    let lost = tokio::time::timeout(ms(1000), lease.lost()).await.unwrap();
    assert_eq!(lost.cause(), LossCause::Deleted);
}

#[tokio::test]
async fn a_user_who_may_only_read_takes_nothing_frees_nothing_and_prolongs_nothing() {
    let server = server_or_skip!();
    let owner = manager(&server).await;
    let lease = owner.lock("k").ttl(ms(60_000)).acquire().await.unwrap();
    let life = ask(&server, &["PTTL", "distlock:k"]).as_int().unwrap();
    ask(&server, &["ACL", "SETUSER", "reader", "on", ">p", "~*", "&*", "-@all", "+@read", "+eval", "+evalsha"]);
    let url = format!("redis://reader:p@127.0.0.1:{}", server.port());
    let reader = LockManager::connect(&url).await.unwrap();
    for key in ["k", "free"] {
        let error = reader.lock(key).acquire().await.unwrap_err();
        // Busy is no secret: whoever may read the key sees who holds it.
        assert!(matches!(error, LockError::Permission(_) | LockError::Busy(_)), "{key}: {error:?}");
    }
    // With the holder's own token, by hand.
    let mut connection = server.connect().unwrap();
    connection.command(&["AUTH", "reader", "p"]).unwrap();
    for command in [vec!["DEL", "distlock:k"], vec!["PEXPIRE", "distlock:k", "1"], vec!["SET", "distlock:k", "x"]] {
        assert!(connection.command(&command).unwrap_err().to_string().contains("NOPERM"));
        let script = format!("return redis.call('{}')", command.join("','"));
        let error = connection.command(&["EVAL", &script, "1", "distlock:k"]).unwrap_err().to_string();
        assert!(error.contains("NOPERM") || error.contains("ACL") || error.contains("can't run"), "{error}");
    }
    assert!(lease.is_held() && !exists(&server, "distlock:free"));
    assert!(ask(&server, &["PTTL", "distlock:k"]).as_int().unwrap() > life - 10_000);
}

#[tokio::test]
async fn a_value_from_outside_runs_no_command_and_reaches_no_other_key() {
    let server = server_or_skip!();
    let locks = manager(&server).await;
    ask(&server, &["SET", "witness", "here"]);
    for hostile in [
        "k') redis.call('FLUSHALL') --",
        "\"; return redis.call('DEL', 'witness') --",
        "] end FLUSHALL",
        "%s%n",
        "a*?[b",
    ] {
        locks.lock(hostile).wait(ms(10)).run(async |_| ()).await.unwrap();
        let lease = locks.lock(hostile).acquire().await.unwrap();
        let Reply::List(keys) = ask(&server, &["KEYS", "distlock:*"]) else { panic!("no keys") };
        assert_eq!(keys, [Reply::Text(format!("distlock:{hostile}"))]);
        lease.release().await.unwrap();
    }
    assert_eq!(ask(&server, &["GET", "witness"]).as_text(), Some("here"));
}

#[tokio::test]
async fn nobody_holds_a_key_for_longer_than_the_manager_allows() {
    let server = server_or_skip!();
    let locks = LockManager::builder().url(server.url()).max_ttl(ms(60_000)).build().await.unwrap();
    let error = locks.lock("k").ttl(ms(60_001)).acquire().await.unwrap_err();
    assert!(matches!(error, LockError::Config(_)), "{error:?}");
    assert!(!exists(&server, "distlock:k"));
    // A renewed lease lives on as long as its body; the one of a body that never ends has its time all the same.
    let lease = locks.lock("k").ttl(ms(300)).max_hold(ms(600)).acquire().await.unwrap();
    assert_eq!(lease.lost().await.cause(), LossCause::MaxHold);
    until("the key is free", ms(1000), || !exists(&server, "distlock:k")).await;
}

//! A primary fails and its replica takes over, with locks in use.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use distlock::{Holder, Lease, LockError, LockManager, LossCause};
use distlock_testkit::{Builder, Cluster, cluster_or_skip};
use tokio::task::{JoinHandle, block_in_place};

use crate::support::{manager, ms, timed, until};

/// How many primaries are killed one after the other.
const FAILOVERS: &str = "DISTLOCK_FAILOVERS";

/// Of the locks in use.
const TTL: Duration = ms(5000);

/// How soon the first caller must get in once the new primary answers.
const BACK_WITHIN: Duration = ms(1000);

/// What tasks saw that take one key each, over and over.
#[derive(Debug, Default)]
struct Seen {
    tokens: BTreeMap<String, Vec<u64>>,
    /// Since the last failover.
    first_success: BTreeMap<String, Instant>,
    /// When somebody was told *Busy*, and since when the holder has the lock.
    busy: Vec<(Instant, Option<SystemTime>)>,
    others: Vec<LockError>,
    unavailable: usize,
}

impl Seen {
    fn note(&mut self, key: &str, lease: &Result<Lease, LockError>) {
        match lease {
            Ok(lease) => {
                self.tokens.entry(key.to_owned()).or_default().push(lease.fencing_token());
                self.first_success.entry(key.to_owned()).or_insert_with(Instant::now);
            }
            Err(LockError::Unavailable(_)) => self.unavailable += 1,
            Err(LockError::Busy(busy)) => self.busy.push((Instant::now(), busy.holder().map(Holder::since))),
            Err(other) => self.others.push(other.clone()),
        }
    }
}

fn work(locks: LockManager, key: String, seen: Arc<Mutex<Seen>>, ended: Arc<AtomicBool>) -> JoinHandle<()> {
    tokio::spawn(async move {
        while !ended.load(Ordering::Acquire) {
            let lease = locks.lock(&*key).ttl(TTL).wait(ms(300)).acquire().await;
            seen.lock().unwrap().note(&key, &lease);
            if let Ok(lease) = lease {
                tokio::time::sleep(ms(2)).await;
                let _ = lease.release().await;
            }
            tokio::time::sleep(ms(5)).await;
        }
    })
}

/// Waits until the replica answers as the primary for `key`; the moment.
fn answers_for(cluster: &Cluster, port: u16, probe: &str) -> Instant {
    let node = cluster.nodes().iter().find(|node| node.port() == port).unwrap();
    let begun = Instant::now();
    while node.command(&["SET", probe, "1"]).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(15), "no failover");
        std::thread::sleep(ms(2));
    }
    Instant::now()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_primary_is_an_outage_until_its_replica_answers_and_never_busy() {
    let rounds = std::env::var(FAILOVERS).ok().and_then(|count| count.parse().ok()).unwrap_or(1);
    let cluster = cluster_or_skip!();
    let locks = manager(&cluster).await;
    let seen = Arc::new(Mutex::new(Seen::default()));
    let ended = Arc::new(AtomicBool::new(false));
    let keys: Vec<String> = (0..24).map(|number| format!("load:{number}")).collect();
    let tasks: Vec<_> = keys.iter().map(|key| work(locks.clone(), key.clone(), seen.clone(), ended.clone())).collect();
    let mut answers = Vec::new();
    for round in 0..rounds {
        tokio::time::sleep(ms(500)).await;
        let victim = format!("distlock:{}", keys[round * 5 % keys.len()]);
        let (primary, heir) = (cluster.primary_of(&victim).unwrap(), cluster.replica_of(&victim).unwrap());
        let moved: Vec<&String> = keys
            .iter()
            .filter(|key| cluster.primary_of(&format!("distlock:{key}")).unwrap().port() == primary.port())
            .collect();
        primary.kill().unwrap();
        let probe = format!("{{{victim}}}:probe");
        let answered = block_in_place(|| answers_for(&cluster, heir.port(), &probe));
        answers.push((answered, SystemTime::now()));
        seen.lock().unwrap().first_success.clear();
        let times = || {
            let seen = seen.lock().unwrap();
            let of = |key: &&String| seen.first_success.get(*key).map(|at| at.saturating_duration_since(answered));
            moved.iter().map(of).collect::<Option<Vec<_>>>()
        };
        // A release that was answered and not copied comes back with the replica; then the ttl ends it.
        until("all keys are locked again", ms(7000), || times().is_some()).await;
        let times = times().unwrap();
        let (first, last) = (times.iter().min().unwrap(), times.iter().max().unwrap());
        println!("round {round}: first success {first:?} after the new primary answered, the last key's {last:?}");
        assert!(*first < BACK_WITHIN, "{first:?}");
        primary.restart_empty().unwrap();
        block_in_place(|| cluster.settle().unwrap());
    }
    ended.store(true, Ordering::Release);
    for task in tasks {
        task.await.unwrap();
    }
    let seen = seen.lock().unwrap();
    // A new primary may have leases and places in line that were given back when the old one had stopped copying, or were
    // granted to a call that had just given up. They stand until their time ends. No key has a second caller.
    let is_inherited = |(at, since): &(Instant, Option<SystemTime>)| {
        answers.iter().any(|(answered, then)| match since {
            Some(since) => (*then + BACK_WITHIN).duration_since(*since).is_ok_and(|age| age < TTL + BACK_WITHIN),
            None => at > answered && *at - *answered < TTL,
        })
    };
    let (inherited, busy): (Vec<_>, Vec<_>) = seen.busy.iter().copied().partition(is_inherited);
    println!(
        "{} keys, {} refused as unavailable, {} busy for what the new primary had inherited, {} busy",
        seen.tokens.len(),
        seen.unavailable,
        inherited.len(),
        busy.len()
    );
    assert!(busy.is_empty(), "{busy:?}");
    assert!(seen.others.is_empty(), "{:?}", seen.others);
    assert!(seen.unavailable > 0);
    for (key, tokens) in &seen.tokens {
        assert!(tokens.windows(2).all(|pair| pair[0] < pair[1]), "`{key}`: {tokens:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_whose_key_was_copied_survives_and_one_whose_key_was_not_is_lost() {
    let cluster = cluster_or_skip!();
    let locks = manager(&cluster).await;
    let ttl = ms(9000);
    let copied = locks.lock("{s}copied").ttl(ttl).acquire().await.unwrap();
    let (primary, replica) = (cluster.primary_of("{s}").unwrap(), cluster.replica_of("{s}").unwrap());
    assert_eq!(primary.command(&["WAIT", "1", "3000"]).unwrap().as_int(), Some(1));
    // Stopped and cut off, so that it hears nothing of what comes now.
    replica.pause().unwrap();
    primary.command(&["CLIENT", "KILL", "TYPE", "replica"]).unwrap();
    let (missing, sent) = (locks.lock("{s}missing").ttl(ttl).acquire().await.unwrap(), Instant::now());
    primary.kill().unwrap();
    replica.resume().unwrap();
    let lost = tokio::time::timeout(ttl, missing.lost()).await.expect("nobody was told");
    assert_eq!(lost.cause(), LossCause::Deleted);
    // At the first renewal that was answered, and before the deadline.
    assert!(sent.elapsed() < ms(8500), "{:?}", sent.elapsed());
    assert!(copied.is_held());
    let next = locks.lock("{s}missing").wait(ms(2000)).acquire().await.unwrap();
    assert!(next.fencing_token() > missing.fencing_token());
    tokio::time::sleep(ttl).await;
    assert!(copied.is_held());
    copied.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_primary_is_an_outage_and_asked_for_nothing_once_it_is_replaced() {
    let cluster = cluster_or_skip!();
    let locks = LockManager::builder().url(cluster.url()).response_timeout(ms(200)).build().await.unwrap();
    locks.lock("k").acquire().await.unwrap().release().await.unwrap();
    let (frozen, heir) = (cluster.primary_of("distlock:k").unwrap(), cluster.replica_of("distlock:k").unwrap());
    frozen.pause().unwrap();
    let (refused, took) = timed(locks.lock("k").acquire()).await;
    assert!(matches!(refused, Err(LockError::Unavailable(_))), "{refused:?}");
    assert!(took < ms(400), "{took:?}");
    let waiting = tokio::spawn(locks.lock("k").ttl(ms(5000)).wait(ms(15_000)).acquire());
    let answered = block_in_place(|| answers_for(&cluster, heir.port(), "{distlock:k}:probe"));
    let lease = waiting.await.unwrap().unwrap();
    assert!(answered.elapsed() < ms(1500), "{:?}", answered.elapsed());
    // It wakes up, executes what it has buffered, and learns that it is a replica now.
    frozen.resume().unwrap();
    block_in_place(|| cluster.settle().unwrap());
    tokio::time::sleep(ms(2500)).await;
    assert!(lease.is_held());
    assert!(manager(&cluster).await.lock("k").acquire().await.unwrap_err().is_busy());
    lease.release().await.unwrap();
    manager(&cluster).await.lock("k").acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_shard_that_is_silent_costs_no_lease_on_the_others() {
    let cluster = cluster_or_skip!(|node: Builder| node.setting("cluster-require-full-coverage", "no"));
    let locks = manager(&cluster).await;
    let ttl = ms(1500);
    let mut leases = Vec::new();
    for number in 0..60 {
        leases.push(locks.lock(format!("order:{number}")).ttl(ttl).acquire().await.unwrap());
    }
    tokio::time::sleep(ttl).await;
    let silent = cluster.primary_of("distlock:order:0").unwrap();
    let served = |key: &str| cluster.primary_of(&format!("distlock:{key}")).unwrap().port();
    let (gone, kept): (Vec<_>, Vec<_>) = leases.into_iter().partition(|lease| served(lease.key()) == silent.port());
    assert!(gone.len() > 5 && kept.len() > 20);
    // Nobody takes over.
    cluster.replica_of("distlock:order:0").unwrap().pause().unwrap();
    silent.pause().unwrap();
    tokio::time::sleep(ttl * 3).await;
    for lease in &gone {
        assert_eq!(lease.lost().await.cause(), LossCause::Expired);
    }
    for lease in &kept {
        assert!(lease.is_held(), "{}", lease.key());
    }
    // Calls for the others are answered as ever.
    let (key, took) = (kept[0].key().to_owned(), Instant::now());
    let other = locks.lock(format!("{{distlock:{key}}}:other")).acquire().await.unwrap();
    assert!(took.elapsed() < ms(300), "{:?}", took.elapsed());
    other.release().await.unwrap();
}

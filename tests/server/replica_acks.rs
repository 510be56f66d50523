//! Locks that count once replicas have them.

use std::time::Instant;

use distlock::{Builder, LockError, LockManager, LossCause};
use distlock_testkit::{Fault, FaultProxy, Match, Server, servers_or_skip};

use crate::support::{ask, exists, ms, timed, until};

/// Makes the others replicas of the first, and waits until they have caught up.
async fn replicate(servers: &[Server]) {
    let [primary, replicas @ ..] = servers else { panic!() };
    ask(primary, &["CONFIG", "SET", "repl-diskless-sync-delay", "0"]);
    for replica in replicas {
        ask(replica, &["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    }
    // In its first second a replica answers late, or not before it is asked again.
    let count = replicas.len().to_string();
    let mut prompt = 0;
    until("they replicate", ms(10_000), || {
        ask(primary, &["SET", "caught", "up"]);
        let answers = ask(primary, &["WAIT", &count, "40"]).as_int() == count.parse().ok();
        prompt = if answers { prompt + 1 } else { 0 };
        prompt == 5
    })
    .await;
}

fn builder(primary: &Server, replicas: usize, limit: u64) -> Builder {
    LockManager::builder().url(primary.url()).replica_acks(replicas, ms(limit))
}

fn refused(error: &LockError, text: &str) {
    assert!(matches!(error, LockError::Unavailable(_)), "{error:?}");
    assert!(error.to_string().contains(text), "{error}");
}

#[tokio::test]
async fn a_granted_lock_is_on_the_replicas() {
    let servers = servers_or_skip!(3);
    replicate(&servers).await;
    let locks = builder(&servers[0], 2, 400).build().await.unwrap();
    for number in 0..100 {
        let lease = locks.lock(format!("k{number}")).ttl(ms(60_000)).acquire().await.unwrap();
        for replica in &servers[1..] {
            assert!(exists(replica, &format!("distlock:k{number}")), "{number}");
        }
        lease.release().await.unwrap();
    }
    // Newer servers count only writes; the replicas would be asked about nothing.
    assert!(servers[0].calls("pexpire").unwrap() >= 100);
    let lease = locks.lock("a").acquire().await.unwrap();
    lease.extend(ms(90_000)).await.unwrap();
    let left = ask(&servers[1], &["PTTL", "distlock:a"]).as_int().unwrap();
    assert!(left > 80_000, "{left}");
}

#[tokio::test]
async fn a_lock_that_no_replica_acknowledges_is_given_back() {
    let servers = servers_or_skip!(2);
    replicate(&servers).await;
    let [primary, replica] = &*servers else { panic!() };
    let locks = builder(primary, 1, 100).build().await.unwrap();
    locks.lock("k").run(async |_| ()).await.unwrap();
    replica.pause().unwrap();
    for _ in 0..3 {
        let (out, took) = timed(locks.lock("k").acquire()).await;
        refused(&out.unwrap_err(), "0 of 1 replicas acknowledged");
        assert!(ms(95) < took && took < ms(400), "{took:?}");
        until("the key is gone", ms(500), || !exists(primary, "distlock:k")).await;
    }
    // Nobody else is kept out meanwhile, and a waiter gets in when there is a replica again.
    let waiting = tokio::spawn(locks.lock("k").wait(ms(5000)).around(async {}));
    tokio::time::sleep(ms(300)).await;
    assert!(!waiting.is_finished());
    replica.resume().unwrap();
    let (out, took) = timed(waiting).await;
    out.unwrap().unwrap();
    assert!(took < ms(1000), "{took:?}");
}

#[tokio::test]
async fn a_lock_is_granted_when_the_replica_has_it_and_not_before() {
    let servers = servers_or_skip!(2);
    replicate(&servers).await;
    let [primary, replica] = &*servers else { panic!() };
    let locks = builder(primary, 1, 450).build().await.unwrap();
    locks.lock("warm").run(async |_| ()).await.unwrap();
    for number in 0..5 {
        replica.pause().unwrap();
        let lock = locks.lock(format!("k{number}"));
        let granted = tokio::spawn(async move { (lock.acquire().await.unwrap(), Instant::now()) });
        tokio::time::sleep(ms(100)).await;
        assert!(exists(primary, &format!("distlock:k{number}")), "the server itself has it");
        let resumed = Instant::now();
        replica.resume().unwrap();
        let (lease, at) = granted.await.unwrap();
        assert!(at >= resumed);
        assert!(exists(replica, &format!("distlock:k{number}")));
        lease.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_crowd_waits_for_the_replicas_together() {
    let servers = servers_or_skip!(2);
    replicate(&servers).await;
    let [primary, replica] = &*servers else { panic!() };
    let locks = builder(primary, 1, 150).build().await.unwrap();
    locks.lock("warm").run(async |_| ()).await.unwrap();
    replica.pause().unwrap();
    let before = primary.calls("wait").unwrap();
    let calls: Vec<_> = (0..100)
        .map(|number| {
            let locks = locks.clone();
            tokio::spawn(async move {
                // Some of them come while the others are waiting.
                tokio::time::sleep(ms(number % 4 * 20)).await;
                timed(locks.lock(format!("k{number}")).acquire()).await
            })
        })
        .collect();
    for call in calls {
        let (out, took) = call.await.unwrap();
        refused(&out.unwrap_err(), "0 of 1 replicas acknowledged");
        // Nobody waits for more than the question that is under way and the next one.
        assert!(took < ms(2 * 150 + 200), "{took:?}");
    }
    let waits = primary.calls("wait").unwrap() - before;
    assert!(waits <= 4, "{waits} times asked");
    replica.resume().unwrap();
}

#[tokio::test]
async fn a_lease_whose_renewals_are_not_acknowledged_ends_at_its_deadline() {
    let servers = servers_or_skip!(2);
    replicate(&servers).await;
    let [primary, replica] = &*servers else { panic!() };
    let locks = builder(primary, 1, 60).build().await.unwrap();
    let lease = locks.lock("k").ttl(ms(1200)).acquire().await.unwrap();
    // A pause within the lease costs nothing.
    replica.pause().unwrap();
    tokio::time::sleep(ms(600)).await;
    refused(&lease.extend(ms(60_000)).await.unwrap_err(), "0 of 1 replicas acknowledged");
    replica.resume().unwrap();
    until("it is renewed", ms(600), || lease.remaining() > ms(1000)).await;
    replica.pause().unwrap();
    let remaining = lease.remaining();
    let (lost, took) = timed(lease.lost()).await;
    assert_eq!(lost.cause(), LossCause::Expired);
    assert!(took < remaining + ms(50), "{took:?} of {remaining:?}");
    replica.resume().unwrap();
}

#[tokio::test]
async fn a_lease_that_is_gone_is_lost_whatever_the_replicas_say() {
    let servers = servers_or_skip!(2);
    replicate(&servers).await;
    let [primary, replica] = &*servers else { panic!() };
    let locks = builder(primary, 1, 60).build().await.unwrap();
    let gone = locks.lock("gone").ttl(ms(900)).acquire().await.unwrap();
    let other = locks.lock("other").ttl(ms(900)).acquire().await.unwrap();
    replica.pause().unwrap();
    ask(primary, &["DEL", "distlock:gone"]);
    let (lost, took) = timed(gone.lost()).await;
    assert_eq!(lost.cause(), LossCause::Deleted);
    assert!(took < ms(500), "{took:?}");
    assert!(other.is_held());
    replica.resume().unwrap();
    tokio::time::sleep(ms(900)).await;
    assert!(other.is_held());
}

/// Not a judgement; `--nocapture` shows what acknowledgements cost here.
#[tokio::test]
async fn what_it_costs() {
    const LOCKS: usize = 300;
    let servers = servers_or_skip!(3);
    replicate(&servers).await;
    for replicas in 0..=2 {
        let builder = match replicas {
            0 => LockManager::builder().url(servers[0].url()),
            _ => builder(&servers[0], replicas, 450),
        };
        let locks = builder.build().await.unwrap();
        let mut times = Vec::new();
        for _ in 0..LOCKS {
            let (lease, took) = timed(locks.lock("k").acquire()).await;
            lease.unwrap().release().await.unwrap();
            times.push(took);
        }
        times.sort_unstable();
        println!("taken with {replicas} acknowledgements: {:?} p50", times[LOCKS / 2]);
    }
}

#[tokio::test]
async fn a_call_whose_time_ends_before_that_of_the_replicas_says_the_same() {
    let servers = servers_or_skip!(2);
    replicate(&servers).await;
    let [primary, replica] = &*servers else { panic!() };
    let locks = builder(primary, 1, 400).build().await.unwrap();
    locks.lock("warm").run(async |_| ()).await.unwrap();
    replica.pause().unwrap();
    let error = locks.lock("k").wait(ms(150)).acquire().await.unwrap_err();
    refused(&error, "0 of 1 replicas acknowledged the lock within ");
    // Whole milliseconds.
    assert!(!error.to_string().contains('.'), "{error}");
    replica.resume().unwrap();
}

#[tokio::test]
async fn a_single_try_after_idle_connections_were_cut_gets_its_lock() {
    let servers = servers_or_skip!(2);
    replicate(&servers).await;
    let locks = builder(&servers[0], 1, 300).build().await.unwrap();
    let lease = locks.lock("held").acquire().await.unwrap();
    ask(&servers[0], &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    tokio::time::sleep(ms(150)).await;
    locks.lock("k").run(async |_| ()).await.unwrap();
    ask(&servers[0], &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    tokio::time::sleep(ms(150)).await;
    lease.extend(ms(30_000)).await.unwrap();
}

#[tokio::test]
async fn a_demotion_while_replicas_are_waited_for_is_an_outage() {
    let servers = servers_or_skip!(3);
    replicate(&servers[..2]).await;
    let [primary, replica, other] = &*servers else { panic!() };
    let locks = builder(primary, 1, 2000).build().await.unwrap();
    locks.lock("warm").run(async |_| ()).await.unwrap();
    replica.pause().unwrap();
    let waits = tokio::spawn(locks.lock("k").wait(ms(8000)).around(async {}));
    tokio::time::sleep(ms(300)).await;
    // `-UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)`
    ask(primary, &["REPLICAOF", "127.0.0.1", &other.port().to_string()]);
    tokio::time::sleep(ms(500)).await;
    ask(primary, &["REPLICAOF", "NO", "ONE"]);
    replica.resume().unwrap();
    waits.await.unwrap().unwrap();
}

#[tokio::test]
async fn acknowledgements_follow_an_address_that_leads_to_a_new_primary() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU16, Ordering};
    let servers = servers_or_skip!(3);
    replicate(&servers).await;
    let [old, new, third] = &*servers else { panic!() };
    // As a virtual address does: new connections go to the new one, and those that stand stay.
    let leads_to = Arc::new(AtomicU16::new(old.port()));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let port = leads_to.clone();
    tokio::spawn(async move {
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            let port = port.load(Ordering::SeqCst);
            tokio::spawn(async move {
                let mut server = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    let locks =
        LockManager::builder().url(format!("redis://{address}")).replica_acks(1, ms(200)).build().await.unwrap();
    locks.lock("warm").run(async |_| ()).await.unwrap();
    ask(new, &["REPLICAOF", "NO", "ONE"]);
    ask(third, &["REPLICAOF", "127.0.0.1", &new.port().to_string()]);
    leads_to.store(new.port(), Ordering::SeqCst);
    // Demoted, and not yet a copy of the new one: it has none of the new keys, and refuses to `WAIT`.
    ask(old, &["REPLICAOF", "127.0.0.1", "1"]);
    locks.lock("k").wait(ms(5000)).run(async |_| ()).await.unwrap();
}

#[tokio::test]
async fn a_connection_for_acknowledgements_that_goes_silent_costs_no_lease_however_long_the_limit() {
    let servers = servers_or_skip!(2);
    replicate(&servers).await;
    let proxy = FaultProxy::start(servers[0].port()).await.unwrap();
    let locks = LockManager::builder().url(proxy.url()).replica_acks(1, ms(20_000)).build().await.unwrap();
    let lease = locks.lock("held").ttl(ms(3000)).acquire().await.unwrap();
    // One renewal on, the watchdog's own connection stands.
    tokio::time::sleep(ms(1300)).await;
    proxy.inject(Match::nth(1).command("WAIT"), Fault::BlackHole);
    tokio::time::sleep(ms(6000)).await;
    lease.ensure_held().unwrap();
}

#[tokio::test]
async fn a_grant_is_not_waited_for_beyond_its_own_life() {
    let servers = servers_or_skip!(2);
    replicate(&servers).await;
    let locks = builder(&servers[0], 1, 6000).build().await.unwrap();
    locks.lock("warm").run(async |_| ()).await.unwrap();
    servers[1].pause().unwrap();
    let (out, took) = timed(locks.lock("k").ttl(ms(500)).acquire()).await;
    refused(&out.unwrap_err(), "0 of 1 replicas acknowledged");
    assert!(took < ms(900), "{took:?}");
    servers[1].resume().unwrap();
}

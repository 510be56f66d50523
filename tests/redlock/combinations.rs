//! Every combination of what three servers can do to a question: 5³ each for acquire, renew and release.

use std::sync::Arc;

use distlock::{LockError, LockManager, LossCause, Release};
use distlock_testkit::{EmbeddedServer, Fault, Match, Refusal};
use tokio::time::{Instant, sleep};

use crate::support::{RELEASE, RENEW, Servers, VOTE, comes_to_stand, manager, ms, servers};

const QUORUM: usize = 2;

/// What one server does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    Ok,
    /// Somebody else has the key there.
    Held,
    /// It refuses.
    Error,
    /// It neither executes nor answers.
    Silent,
    /// It executes, and answers when nobody waits any more.
    Late,
}

const ALL: [Does; 5] = [Does::Ok, Does::Held, Does::Error, Does::Silent, Does::Late];

/// The lease's ttl, and with it how long one server may take: a tenth of it, at most the response time-out.
const TTL: u64 = 60_000;
const OWN: &str = "11111111-1111-4111-8111-111111111111 17 there/7 other::task 1735689600000000";

impl Does {
    fn to(self, server: &Arc<EmbeddedServer>, script: &str) {
        let fault = match self {
            Self::Ok => return,
            Self::Held => {
                server.command(&["SET", "distlock:k", OWN, "PX", "600000"]).unwrap();
                return;
            }
            Self::Error => Fault::Refuse(Refusal::Oom),
            Self::Silent => Fault::BlackHole,
            Self::Late => Fault::DelayReply(ms(2000)),
        };
        server.inject(Match::every().script(script), fault);
    }
}

fn combinations() -> impl Iterator<Item = [Does; 3]> {
    ALL.into_iter().flat_map(|a| ALL.into_iter().flat_map(move |b| ALL.into_iter().map(move |c| [a, b, c])))
}

fn count(all: [Does; 3], which: impl Fn(Does) -> bool) -> usize {
    all.into_iter().filter(|does| which(*does)).count()
}

/// Each server does its own when asked by `script`. The managers are warm: connected, and their scripts are known.
async fn begin(all: [Does; 3], script: &str) -> (Servers, LockManager) {
    let servers = servers(3);
    let locks = manager(&servers).await;
    locks.lock("warm").run(async |_| ()).await.unwrap();
    sleep(ms(1)).await;
    for (server, does) in servers.iter().zip(all) {
        does.to(server, script);
    }
    (servers, locks)
}

/// On how many servers somebody else has the key.
fn foreign(servers: &Servers) -> usize {
    servers.iter().filter(|server| server.command(&["GET", "distlock:k"]).unwrap().as_text() == Some(OWN)).count()
}

/// When nothing goes wrong any more, nothing is left but what was somebody else's.
async fn is_clean(servers: &Servers, all: [Does; 3], limit: std::time::Duration) {
    servers.iter().for_each(|server| server.clear());
    let held = count(all, |does| does == Does::Held);
    comes_to_stand(servers, "k", held, limit).await;
    assert_eq!(foreign(servers), held, "{all:?}");
}

#[tokio::test(start_paused = true)]
async fn acquire() {
    for all in combinations() {
        let (servers, locks) = begin(all, VOTE).await;
        let (ok, held) = (count(all, |does| does == Does::Ok), count(all, |does| does == Does::Held));
        let begun = Instant::now();
        let acquired = locks.lock("k").ttl(ms(TTL)).acquire().await;
        let took = begun.elapsed();
        match &acquired {
            Ok(lease) => {
                assert!(ok >= QUORUM && lease.is_held(), "{all:?}");
                // It could not have been decided earlier, nor later: nobody is waited for whose answer does not count.
                assert_eq!(took, ms(0), "{all:?}");
            }
            Err(LockError::Busy(busy)) => {
                assert!(held >= QUORUM, "{all:?}: {busy}");
                assert_eq!(busy.holder().unwrap().function(), "other::task");
                assert_eq!(took, ms(0), "{all:?}");
            }
            Err(LockError::Unavailable(_)) => assert_eq!(ok + held, 0, "{all:?}"),
            Err(LockError::NoQuorum(it)) => {
                assert!(ok < QUORUM && held < QUORUM && ok + held > 0, "{all:?}: {it}");
                assert_eq!((it.granted(), it.held(), it.failed()), (ok, held, 3 - ok - held), "{all:?}");
            }
            Err(other) => panic!("{all:?}: {other}"),
        }
        assert!(took <= ms(520), "{all:?}: {took:?}");
        if let Ok(lease) = acquired {
            // Renewed well beyond its ttl while the servers are as they are, and given back on all of them.
            sleep(ms(2 * TTL)).await;
            assert!(lease.is_held(), "{all:?}");
            assert_eq!(lease.release().await.unwrap(), Release::Released);
        }
        is_clean(&servers, all, ms(8000)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn renew() {
    for all in combinations() {
        let (servers, locks) = begin([Does::Ok; 3], VOTE).await;
        let lease = locks.lock("k").ttl(ms(6000)).acquire().await.unwrap();
        sleep(ms(1)).await;
        for (server, does) in servers.iter().zip(all) {
            does.to(server, RENEW);
        }
        let (ok, held) = (count(all, |does| does == Does::Ok), count(all, |does| does == Does::Held));
        // The first renewal is due after 2 s.
        sleep(ms(2100)).await;
        if held >= QUORUM {
            let LockError::Lost(lost) = lease.ensure_held().unwrap_err() else { panic!() };
            assert_eq!(lost.cause(), LossCause::Stolen, "{all:?}");
        } else {
            assert!(lease.is_held(), "{all:?}");
            sleep(ms(3800)).await;
            // Prolonged by a majority, or as long as before.
            assert_eq!(lease.remaining() > ms(1000), ok >= QUORUM, "{all:?}: {:?}", lease.remaining());
            sleep(ms(200)).await;
            if ok >= QUORUM {
                assert!(lease.is_held(), "{all:?}");
            } else {
                let LockError::Lost(lost) = lease.ensure_held().unwrap_err() else { panic!() };
                assert_eq!(lost.cause(), LossCause::Expired, "{all:?}");
            }
        }
        drop(lease);
        is_clean(&servers, all, ms(8000)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_decided_nothing_is_made_up_for() {
    for all in combinations().filter(|all| count(*all, |does| does == Does::Held) < QUORUM) {
        let (servers, locks) = begin([Does::Ok; 3], VOTE).await;
        let lease = locks.lock("k").ttl(ms(6000)).acquire().await.unwrap();
        sleep(ms(1)).await;
        for (server, does) in servers.iter().zip(all) {
            does.to(server, RENEW);
        }
        sleep(ms(3500)).await;
        servers.iter().for_each(|server| server.clear());
        sleep(ms(20_000)).await;
        assert!(lease.is_held(), "{all:?}");
        assert_eq!(lease.release().await.unwrap(), Release::Released, "{all:?}");
        is_clean(&servers, all, ms(8000)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn release() {
    for all in combinations() {
        let (servers, locks) = begin([Does::Ok; 3], VOTE).await;
        let lease = locks.lock("k").ttl(ms(TTL)).acquire().await.unwrap();
        sleep(ms(1)).await;
        for (server, does) in servers.iter().zip(all) {
            does.to(server, RELEASE);
        }
        let answers = count(all, |does| matches!(does, Does::Ok | Does::Held));
        let begun = Instant::now();
        let released = lease.release().await;
        let took = begun.elapsed();
        match released {
            Ok(release) => {
                assert!(answers >= QUORUM, "{all:?}");
                let held = count(all, |does| does == Does::Held);
                let lost = held >= QUORUM;
                // One that gave it back and one that did not have it any more: the third decides.
                let decided = lost || answers - held >= QUORUM;
                assert!(took <= if decided { ms(0) } else { ms(520) }, "{all:?}: {took:?}");
                assert_eq!(release, if lost { Release::AlreadyLost } else { Release::Released }, "{all:?}");
            }
            Err(error) => {
                assert!(answers < QUORUM && took <= ms(520), "{all:?}: {error}");
                assert!(matches!(error, LockError::Unavailable(_) | LockError::NoQuorum(_)), "{all:?}: {error}");
            }
        }
        is_clean(&servers, all, ms(8000)).await;
    }
}

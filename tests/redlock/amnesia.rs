//! Servers that lose their memory or their sense of time, at every step of a holder's life while another process tries.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock::{Builder, LeaseHandle, LockError, LockManager};
use distlock_testkit::{EmbeddedServer, Fault, Match};
use tokio::time::{Instant, sleep, sleep_until};

use crate::support::{Servers, ms, on, servers};

const TTL: Duration = ms(300);
const MAX_TTL: Duration = ms(400);

/// How long the first holder holds.
const HOLD: Duration = ms(430);

/// Every lease that was granted, in order.
#[derive(Clone, Default)]
struct Granted(Arc<Mutex<Vec<LeaseHandle>>>);

impl Granted {
    /// The largest number of leases that were valid at the same time, looked at whenever one is granted.
    fn note(&self, handle: LeaseHandle, doubles: &Mutex<u32>) {
        let mut all = self.0.lock().unwrap();
        if all.iter().any(LeaseHandle::is_held) {
            *doubles.lock().unwrap() += 1;
        }
        all.push(handle);
    }

    fn tokens(&self) -> Vec<u64> {
        self.0.lock().unwrap().iter().map(LeaseHandle::fencing_token).collect()
    }
}

/// What one life has come to.
struct Outcome {
    doubles: u32,
    tokens: Vec<u64>,
    /// When a server executed something for one of the two.
    steps: BTreeSet<Duration>,
}

/// Settings of a manager that reaches some of the servers, and never the others.
fn reaching(servers: &Servers, reach: [bool; 3]) -> Builder {
    servers.iter().zip(reach).fold(LockManager::builder(), |builder, (server, reached)| {
        let server = server.clone();
        builder.server_streams(move || {
            let stream = if reached { Ok(server.connect()) } else { Err(std::io::ErrorKind::ConnectionRefused.into()) };
            async move { stream }
        })
    })
}

/// One process holds the key for a while, another wants it from the beginning; at `at`, something happens to a server.
async fn life(reach: [bool; 3], quarantine: bool, at: Duration, happens: impl FnOnce(&Servers)) -> Outcome {
    let (servers, started) = (servers(3), Instant::now());
    // Each step of a round is at a moment of its own.
    for (server, latency) in servers.iter().zip([1, 2, 3]) {
        server.inject(Match::every().command("EVALSHA"), Fault::DelayCommand(ms(latency)));
    }
    let set_up = |builder: Builder| builder.quarantine(quarantine).max_ttl(MAX_TTL).default_ttl(TTL).build();
    let (first, second) = (set_up(reaching(&servers, reach)).await.unwrap(), set_up(on(&servers)).await.unwrap());
    if quarantine {
        second.bootstrap().await.unwrap();
    }
    for locks in [&first, &second] {
        locks.lock("warm").ttl(TTL).run(async |_| ()).await.unwrap();
    }
    sleep(ms(10)).await;
    let (granted, doubles) = (Granted::default(), Arc::new(Mutex::new(0)));
    let begun = Instant::now();
    let holding = tokio::spawn({
        let (granted, doubles) = (granted.clone(), doubles.clone());
        async move {
            let lease = match first.lock("k").wait(ms(200)).acquire().await {
                Ok(lease) => lease,
                Err(LockError::Busy(_) | LockError::NoQuorum(_) | LockError::Unavailable(_)) => return,
                Err(error) => panic!("{error}"),
            };
            granted.note(lease.handle(), &doubles);
            sleep_until(begun + HOLD).await;
            drop(lease);
        }
    });
    let trying = tokio::spawn({
        let (granted, doubles) = (granted.clone(), doubles.clone());
        async move {
            // The first one comes first.
            sleep(ms(2)).await;
            while begun.elapsed() < HOLD * 3 {
                match second.lock("k").wait(ms(100)).acquire().await {
                    Ok(lease) => {
                        granted.note(lease.handle(), &doubles);
                        sleep(ms(20)).await;
                    }
                    Err(LockError::Busy(_) | LockError::NoQuorum(_) | LockError::Unavailable(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
    });
    sleep_until(begun + at).await;
    happens(&servers);
    holding.await.unwrap();
    trying.await.unwrap();
    let executed = servers.iter().flat_map(|server| server.log()).filter(|executed| executed.name() == "EVALSHA");
    let steps = executed.filter_map(|executed| executed.at.checked_sub(begun - started)).collect();
    let doubles = *doubles.lock().unwrap();
    Outcome { doubles, tokens: granted.tokens(), steps }
}

fn assert_rising(outcome: &Outcome, what: &str) {
    assert!(outcome.tokens.is_sorted_by(|a, b| a < b), "{what}: {:?}", outcome.tokens);
    assert!(outcome.tokens.len() > 1, "{what}: nobody got it");
}

fn takes_all() -> bool {
    std::env::var_os("DISTLOCK_STEPS").is_some_and(|which| which == "all")
}

/// Every so many of the moments are enough for each day.
fn one_of(moments: usize) -> usize {
    if takes_all() { 1 } else { moments }
}

/// The moments of the holder's life at which something is to happen: at each step of a server, and right after. With
/// `DISTLOCK_STEPS=all` every millisecond.
async fn moments(reach: [bool; 3], quarantine: bool) -> Vec<Duration> {
    let end = HOLD + ms(20);
    if takes_all() {
        return (0..=u64::try_from(end.as_millis()).unwrap()).map(ms).collect();
    }
    let steps = life(reach, quarantine, end, |_| ()).await.steps;
    let moments: BTreeSet<_> = steps.into_iter().flat_map(|at| [at, at + ms(1)]).filter(|at| *at <= end).collect();
    assert!(moments.len() > 20, "nothing happens in this life");
    moments.into_iter().collect()
}

#[tokio::test(start_paused = true)]
async fn a_server_that_forgets_makes_no_second_holder_whenever_it_does() {
    // The holder is on a bare quorum, the worst that can be.
    for reach in [[true, true, false], [true, false, true], [false, true, true]] {
        for forgets in (0..3).filter(|server| reach[*server]) {
            for at in moments(reach, true).await {
                let what = format!("server {forgets} forgets at {at:?}, the holder reaches {reach:?}");
                let outcome = life(reach, true, at, |servers| servers[forgets].restart(false)).await;
                assert_eq!(outcome.doubles, 0, "{what}");
                assert_rising(&outcome, &what);
            }
        }
    }
}

/// As from a snapshot: all that it knew is there again, but for what it was told since.
#[tokio::test(start_paused = true)]
async fn a_server_that_forgets_its_latest_writes_only_makes_no_second_holder() {
    for at in moments([true, true, false], true).await.into_iter().step_by(one_of(2)) {
        let outcome = life([true, true, false], true, at, |servers| {
            servers[1].command(&["DEL", "distlock:k", "{distlock}:fence"]).unwrap();
            servers[1].restart(true);
        })
        .await;
        assert_eq!(outcome.doubles, 0, "{at:?}");
        assert_rising(&outcome, &format!("{at:?}"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_flush_is_a_loss_of_memory_too() {
    for at in moments([true, true, false], true).await.into_iter().step_by(one_of(3)) {
        let outcome = life([true, true, false], true, at, |servers| {
            servers[1].command(&["FLUSHALL"]).unwrap();
        })
        .await;
        assert_eq!(outcome.doubles, 0, "{at:?}");
        assert_rising(&outcome, &format!("{at:?}"));
    }
}

/// What the test above would miss if it could not see anything.
#[tokio::test(start_paused = true)]
async fn without_quarantine_it_does_make_one() {
    let outcome = life([true, true, false], false, ms(100), |servers| servers[1].restart(false)).await;
    assert!(outcome.doubles > 0);
}

#[tokio::test(start_paused = true)]
async fn the_clock_of_one_server_makes_no_second_holder() {
    type Bend = fn(&EmbeddedServer);
    let bends: [(&str, Bend); 4] = [
        ("an hour ahead", |server| server.clock().step_forward(Duration::from_secs(3600))),
        ("an hour back", |server| server.clock().step_back(Duration::from_secs(3600))),
        ("8 % fast", |server| server.clock().set_rate(83_333)),
        ("8 % slow", |server| server.clock().set_rate(-83_333)),
    ];
    for (name, bend) in bends {
        for server in 0..3 {
            // Once the lease stands on all of them: until then one clock that steps is one server too many.
            for at in moments([true; 3], false).await.into_iter().filter(|at| *at > ms(10)).step_by(one_of(2)) {
                let what = format!("server {server} {name} at {at:?}");
                let outcome = life([true; 3], false, at, |servers| bend(&servers[server])).await;
                assert_eq!(outcome.doubles, 0, "{what}");
                assert_rising(&outcome, &what);
            }
        }
    }
}

//! Failovers under load: nobody is told *Busy* for the outage, and callers get in again soon after there is a primary.
//!
//! A new primary may have leases, and places in line, that were given back at the old one when it had already stopped
//! listening to it. They stand until their time ends, and *Busy* is the truth about them.

use std::time::{Duration, Instant, SystemTime};

use distlock::{Lease, LockManager, LossCause};
use distlock_testkit::{SentinelSet, Server, sentinels_or_skip};

use crate::load::{Load, TTL, Told};
use crate::ms;

/// How many failovers of each kind there are.
const FAILOVERS: &str = "DISTLOCK_FAILOVERS";

const FAILOVERS_OF_A_QUICK_RUN: usize = 2;

/// How soon the first caller must get in once the new primary answers.
const BACK_WITHIN: Duration = ms(1000);

/// A new primary that is not named by then never is.
const ANNULLED_AFTER: Duration = ms(10_000);

#[derive(Clone, Copy, Debug)]
enum Kind {
    Kill,
    Demotion,
    Freeze,
}

/// What one failover cost.
struct Cost {
    /// From its beginning until a new primary took writes.
    without_primary: Duration,
    /// The moment of its first write, here and on the servers.
    written: Instant,
    first_write: SystemTime,
    /// From there until most Sentinels named it.
    unnamed: Duration,
    /// From its first write until it granted a lock.
    granted_after_write: Duration,
    /// From the name until it had.
    granted_after: Duration,
}

pub(crate) fn failovers() -> usize {
    let Ok(text) = std::env::var(FAILOVERS) else { return FAILOVERS_OF_A_QUICK_RUN };
    text.parse().unwrap_or_else(|_| panic!("`{FAILOVERS}` is no number: `{text}`"))
}

async fn soon(what: &str, is_so: impl FnMut() -> bool) -> Instant {
    within(ms(30_000), is_so).await.unwrap_or_else(|| panic!("{what}: not within 30 s"))
}

async fn within(limit: Duration, mut is_so: impl FnMut() -> bool) -> Option<Instant> {
    let until = Instant::now() + limit;
    while !is_so() {
        if Instant::now() > until {
            return None;
        }
        tokio::time::sleep(ms(2)).await;
    }
    Some(Instant::now())
}

fn takes_writes(node: &Server) -> bool {
    node.command(&["SET", "probe", "x"]).is_ok()
}

/// The number of the latest grant that a node knows of.
fn latest_grant(node: &Server) -> Option<u64> {
    node.command(&["GET", "{distlock}:fence"]).ok()?.as_text()?.parse().ok()
}

/// From now on nothing reaches the replicas, and nobody else notices: what is granted now does not survive.
pub(crate) fn cut_off_replicas(primary: &Server) {
    primary.command(&["ACL", "SETUSER", "default", "-psync", "-sync", "-replconf"]).unwrap();
    primary.command(&["CLIENT", "KILL", "TYPE", "replica"]).unwrap();
}

/// Two who hold a lock through a failover.
struct Holders {
    /// Its key is on all replicas.
    survivor: Lease,
    /// Its key is on the primary alone.
    victim: Lease,
}

impl Holders {
    async fn take(set: &SentinelSet, locks: &LockManager) -> Self {
        let survivor = locks.lock("survivor").ttl(ms(30_000)).wait(ms(5000)).acquire().await.unwrap();
        let primary = set.primary().unwrap();
        let has_it = || {
            primary.command(&["SET", "probe", "x"]).is_ok()
                && primary.command(&["WAIT", "2", "500"]).is_ok_and(|count| count.as_int() == Some(2))
        };
        soon("the replicas", has_it).await;
        cut_off_replicas(primary);
        let victim = locks.lock("victim").ttl(ms(9000)).wait(ms(5000)).acquire().await.unwrap();
        Self { survivor, victim }
    }

    /// Once there is a new primary.
    async fn judge(self) {
        let lost = tokio::time::timeout(ms(9000), self.victim.lost()).await;
        assert_eq!(lost.expect("nobody tells the victim").cause(), LossCause::Deleted);
        self.survivor.extend(ms(30_000)).await.unwrap();
        self.survivor.release().await.unwrap();
    }
}

async fn fail_over(set: &SentinelSet, load: &Load, kind: Kind) -> Cost {
    let old = set.primary().unwrap();
    let others = set.replicas().unwrap();
    let begun = Instant::now();
    let (written, first_write, granted, named) = loop {
        match kind {
            Kind::Kill => old.kill().unwrap(),
            Kind::Demotion => set.demote_primary().unwrap(),
            Kind::Freeze => old.pause().unwrap(),
        }
        let mut new = old;
        let is_there = || {
            new = others.iter().find(|node| takes_writes(node)).copied().unwrap_or(old);
            new.port() != old.port()
        };
        let written = soon("a new primary", is_there).await;
        let first_write = SystemTime::now();
        // It has done with the old one, so from here on these are its own.
        let inherited = latest_grant(new);
        let (mut granted, mut named) = (None, None);
        let is_in_use = || {
            let now = Instant::now();
            granted = granted.or_else(|| (latest_grant(new) > inherited).then_some(now));
            named = named.or_else(|| set.primary().is_ok_and(|it| it.port() == new.port()).then_some(now));
            granted.is_some() && named.is_some()
        };
        let _ = within(ANNULLED_AFTER, is_in_use).await;
        match (granted, named) {
            (Some(granted), Some(named)) => break (written, first_write, granted, named),
            // Another Sentinel of the kit, which are in a hurry, took the replica that was being promoted for a primary of
            // before and made it a replica again. The old primary never stopped being one.
            (_, None) if matches!(kind, Kind::Demotion) => {}
            (_, None) => panic!("nobody names the new primary"),
            (None, _) => panic!("nobody gets a lock on the new primary"),
        }
    };
    soon("a caller is told so", || load.first_success(named).is_some()).await;
    match kind {
        Kind::Kill => set.rejoin(old).unwrap(),
        Kind::Freeze => old.resume().unwrap(),
        Kind::Demotion => {}
    }
    old.command(&["ACL", "SETUSER", "default", "+@all"]).unwrap();
    set.wait_until_stable().unwrap();
    Cost {
        without_primary: written - begun,
        written,
        first_write,
        unnamed: named - written,
        granted_after_write: granted.saturating_duration_since(written),
        granted_after: granted.saturating_duration_since(named),
    }
}

async fn fail_over_again_and_again(set: &SentinelSet, kind: Kind) {
    let load = Load::start(&set.url()).await;
    let locks = LockManager::connect(set.url()).await.unwrap();
    let mut costs = Vec::new();
    for _ in 0..failovers() {
        tokio::time::sleep(ms(300)).await;
        let holders = Holders::take(set, &locks).await;
        costs.push(fail_over(set, &load, kind).await);
        holders.judge().await;
    }
    let told = load.stop().await;
    let count = |what: fn(&Told) -> bool| told.iter().filter(|(_, told)| what(told)).count();
    let figures = |of: fn(&Cost) -> Duration| {
        let mut all: Vec<_> = costs.iter().map(of).collect();
        all.sort_unstable();
        format!("{} ms p50, {} ms at most", all[all.len() / 2].as_millis(), all[all.len() - 1].as_millis())
    };
    let is_inherited = |at: Instant, since: Option<SystemTime>| {
        costs.iter().any(|it| match since {
            // Or it was granted to a call that had just given up, and is being given back.
            Some(since) => (it.first_write + BACK_WITHIN).duration_since(since).is_ok_and(|age| age < TTL),
            // By a place in line that a waiter had before.
            None => at > it.written && at - it.written < TTL,
        })
    };
    let (inherited, busy): (Vec<_>, Vec<_>) = told
        .iter()
        .filter_map(|(at, told)| if let Told::Busy(since) = told { Some((*at, *since)) } else { None })
        .partition(|(at, since)| is_inherited(*at, *since));
    println!("{kind:?}, {} times: {} until a new primary took writes", costs.len(), figures(|it| it.without_primary));
    println!("{kind:?}: {} until most Sentinels named it", figures(|it| it.unnamed));
    println!("{kind:?}: {} from then until it granted a lock", figures(|it| it.granted_after));
    println!("{kind:?}: {} from its first write until it granted a lock", figures(|it| it.granted_after_write));
    println!("{kind:?}: each time a holder whose key did not survive was told Lost, and one whose key did was not");
    println!(
        "{kind:?}: {} calls got in, {} were told Unavailable, {} Lost, {} Busy for what the new primary had inherited, {} Busy",
        count(|told| *told == Told::In),
        count(|told| *told == Told::Unavailable),
        count(|told| *told == Told::Lost),
        inherited.len(),
        busy.len(),
    );
    assert_eq!(count(|told| *told == Told::Other), 0);
    assert!(busy.is_empty(), "{busy:?}");
    let latest = costs.iter().map(|cost| cost.granted_after).max().unwrap();
    assert!(latest <= BACK_WITHIN, "{latest:?}");
    // An old primary that is well is used until there is a new one.
    assert!(count(|told| *told == Told::Unavailable) > 0 || matches!(kind, Kind::Demotion), "there was no outage");
}

// The set's own methods block the test's thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_primary_is_followed() {
    let set = sentinels_or_skip!();
    fail_over_again_and_again(&set, Kind::Kill).await;
}

// The set's own methods block the test's thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_demoted_in_place_is_followed() {
    let set = sentinels_or_skip!();
    fail_over_again_and_again(&set, Kind::Demotion).await;
}

// The set's own methods block the test's thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_primary_is_followed() {
    let set = sentinels_or_skip!();
    fail_over_again_and_again(&set, Kind::Freeze).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_is_replaced_while_it_is_well_is_left_at_once() {
    let set = sentinels_or_skip!();
    // As it is outside of tests: the old primary hears of it, and closes its connections, after many seconds.
    for sentinel in set.sentinels() {
        let _ = sentinel.command(&["SENTINEL", "DEBUG", "publish-period", "20000"]);
    }
    let locks = LockManager::connect(set.url()).await.unwrap();
    locks.lock("warm").run(async |_| ()).await.unwrap();
    let old = set.primary().unwrap();
    set.demote_primary().unwrap();
    let new = set.wait_for_failover(old).unwrap();
    let named = Instant::now();
    loop {
        // One that is under way when the connection is closed may fail.
        if let Ok(_lease) = locks.lock("k").wait(ms(500)).acquire().await
            && new.command(&["EXISTS", "distlock:k"]).unwrap().as_int() == Some(1)
        {
            break;
        }
        assert!(named.elapsed() < BACK_WITHIN * 3, "it still takes locks on the old primary");
        tokio::time::sleep(ms(10)).await;
    }
    assert!(takes_writes(old), "the old primary has heard of it already, which shows nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_does_not_answer_is_given_up_when_another_is_named() {
    let set = sentinels_or_skip!();
    let patient = LockManager::builder().url(set.url()).connect_timeout(ms(6000)).lazy().build().await.unwrap();
    let old = set.primary().unwrap();
    old.pause().unwrap();
    let waiting = tokio::spawn(async move {
        patient.lock("k").wait(ms(20_000)).run(async |_| ()).await.unwrap();
        Instant::now()
    });
    set.wait_for_failover(old).unwrap();
    let named = Instant::now();
    let back_after = waiting.await.unwrap().saturating_duration_since(named);
    assert!(back_after <= BACK_WITHIN, "{back_after:?}");
    old.resume().unwrap();
}

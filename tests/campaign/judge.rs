//! Tells whether what happened was in order: nobody in beside anybody, nobody kept waiting, nothing left.

use std::time::{Duration, Instant};

use distlock_testkit::{History, Moment, Reply, Server, check};

use crate::driver::{Story, Trouble, What};
use crate::ms;
use crate::worker::{HISTORY, TASKS, TTL, WAITS};

/// How many may stand in front of a waiter.
const PLACES: u32 = 8 * TASKS as u32;

/// What one hold may take: a body of a millisecond and the ways to the server and back, up to what nine of ten did take on
/// this machine, which may be busy with much else. Beyond the upper bound something is wrong all the same.
const HOLD: std::ops::RangeInclusive<Duration> = ms(15)..=ms(150);

/// How many may come in while somebody waits: everybody who stands in front, and those whom a process takes along when it
/// hands the key on to its own tasks.
const MOST_BEFORE: usize = 4 * PLACES as usize;

/// What is granted on top.
const SLACK: Duration = ms(1000);

struct Wait {
    pid: u32,
    from: Moment,
    to: Moment,
    outcome: String,
}

fn waits(text: &str) -> Vec<Wait> {
    let wait = |line: &str| {
        let mut words = line.splitn(4, ' ');
        let mut number = || words.next()?.parse::<u64>().ok();
        let (pid, from, to) = (number()?, number()?, number()?);
        let outcome = words.next()?.to_owned();
        let (from, to) = (Moment::from_nanos(from), Moment::from_nanos(to));
        Some(Wait { pid: u32::try_from(pid).ok()?, from, to, outcome })
    };
    text.lines().map(|line| wait(line).unwrap_or_else(|| panic!("no wait: `{line}`"))).collect()
}

/// How much of the trouble falls into the wait; `None` if it was over before, or came after.
fn shared(wait: &Wait, trouble: &Trouble) -> Option<Duration> {
    let (from, to) = (wait.from.max(trouble.from), wait.to.min(trouble.to));
    (from <= to).then(|| to.since(from))
}

/// The longest that a wait may take: its place times a hold, a ttl and a second. The ttl counts once for each process
/// that was killed or stopped meanwhile, for each of them may have been the holder or the next; the time in which the
/// server was down, and in which the waiter itself stood still, comes on top.
fn bound(wait: &Wait, story: &Story, hold: Duration) -> Duration {
    let mut bound = hold * PLACES + TTL + SLACK;
    let mut crashes = 0;
    for trouble in &story.troubles {
        // One that ended a moment ago may still be felt.
        let felt = Trouble { to: trouble.to + TTL, ..trouble.clone() };
        let Some(_) = shared(wait, &felt) else { continue };
        match trouble.what {
            What::ServerDown => bound += shared(wait, trouble).unwrap_or_default(),
            What::Stopped { pid } if pid == wait.pid => bound += shared(wait, trouble).unwrap_or_default(),
            What::Stopped { .. } | What::Killed { .. } => crashes += 1,
            What::ConnectionsCut | What::ScriptsFlushed => {}
        }
    }
    bound += TTL * u32::saturating_sub(crashes, 1);
    bound
}

/// Whether the waiter's own process stood still meanwhile.
fn stood_still(wait: &Wait, story: &Story) -> bool {
    let is_it = |trouble: &Trouble| trouble.what == What::Stopped { pid: wait.pid } && shared(wait, trouble).is_some();
    story.troubles.iter().any(is_it)
}

/// What nine of ten holds took, from one lease to the next.
fn hold(grants: &[Moment]) -> Duration {
    let mut holds: Vec<_> = grants.windows(2).map(|pair| pair[1].since(pair[0])).collect();
    holds.sort_unstable();
    let most = holds.get(holds.len() * 9 / 10).copied().unwrap_or_default();
    most.clamp(*HOLD.start(), *HOLD.end())
}

pub(crate) fn judge(server: &Server, story: &Story) {
    let waits = waits(&std::fs::read_to_string(server.folder().join(WAITS)).unwrap());
    let history = History::read(server.folder().join(HISTORY)).unwrap();
    let report = check(&history);
    let grants: Vec<_> = history.leases().iter().map(|held| held.from).collect();
    let mut times: Vec<_> = waits.iter().map(|wait| wait.to.since(wait.from)).collect();
    times.sort_unstable();
    let part = |percent: usize| times[(times.len() - 1) * percent / 100];
    println!(
        "{} killed, {} stopped, {} times connections cut, {} times scripts flushed, {} restarts",
        story.count(|what| matches!(what, What::Killed { .. })),
        story.count(|what| matches!(what, What::Stopped { .. })),
        story.count(|what| *what == What::ConnectionsCut),
        story.count(|what| *what == What::ScriptsFlushed),
        story.count(|what| *what == What::ServerDown),
    );
    println!(
        "{} leases in {} processes, {} lost; waited {:?} p50, {:?} p99, {:?} at most",
        report.grants(),
        report.processes(),
        waits.iter().filter(|wait| wait.outcome == "lost").count(),
        part(50),
        part(99),
        part(100),
    );
    report.assert_clean();
    assert!(report.grants() > 100 && report.processes() >= 8, "hardly anything happened");
    let refused: Vec<_> = waits.iter().map(|wait| &wait.outcome).filter(|it| *it != "in" && *it != "lost").collect();
    assert!(refused.is_empty(), "refused: {refused:?}");
    let before = |wait: &Wait| {
        grants.partition_point(|grant| *grant < wait.to) - grants.partition_point(|grant| *grant <= wait.from)
    };
    let most_before = waits.iter().filter(|wait| !stood_still(wait, story)).map(before).max().unwrap_or_default();
    let hold = hold(&grants);
    let share = |wait: &&Wait| wait.to.since(wait.from).as_secs_f64() / bound(wait, story, hold).as_secs_f64();
    let closest = waits.iter().max_by(|a, b| share(a).total_cmp(&share(b))).expect("nobody waited");
    println!(
        "the wait that came closest to its bound took {:?} of {:?}, with {hold:?} for a hold; {most_before} others came in \
         during one wait at most",
        closest.to.since(closest.from),
        bound(closest, story, hold),
    );
    assert!(share(&closest) <= 1.0, "somebody waited too long");
    assert!(most_before <= MOST_BEFORE, "somebody was overtaken again and again");
    nothing_is_left(server);
}

/// Entries of processes that were killed live for three signs of life and a response time-out; burials for a minute.
fn nothing_is_left(server: &Server) {
    let left = || {
        let Reply::List(keys) = server.command(&["KEYS", "*"]).unwrap() else { panic!("no keys") };
        let names: Vec<_> = keys.iter().filter_map(Reply::as_text).map(str::to_owned).collect();
        names.into_iter().filter(|name| name != "{distlock}:fence" && !name.contains(":gone:")).collect::<Vec<_>>()
    };
    let begun = Instant::now();
    while !left().is_empty() {
        assert!(begun.elapsed() < ms(2500), "left: {:?}", left());
        std::thread::sleep(ms(10));
    }
    let Reply::List(burials) = server.command(&["KEYS", "*:gone:*"]).unwrap() else { panic!("no keys") };
    for burial in burials.iter().filter_map(Reply::as_text) {
        let life = server.command(&["PTTL", burial]).unwrap().as_int().unwrap();
        assert!(life != -1 && life <= 60_000, "`{burial}` lives for {life} ms");
    }
}

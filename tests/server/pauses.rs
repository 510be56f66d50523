//! D2.8 with real pauses: a holder that is stopped for longer than its ttl must not take a step when it goes on.
//!
//! `DISTLOCK_PAUSES=200 cargo test --release --test server pauses -- --nocapture` tries each kind of body as often as that,
//! on a machine that is otherwise idle.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use distlock::{Lease, LockManager};
use distlock_testkit::{process, server_or_skip};

use crate::support::ms;

const URL: &str = "DISTLOCK_TEST_PAUSED_URL";
const BODY: &str = "DISTLOCK_TEST_PAUSED_BODY";
const THREADS: &str = "DISTLOCK_TEST_PAUSED_THREADS";

const TTL: Duration = ms(60);
const STOPPED: Duration = ms(180);

/// How many pauses may hit the moment between the guard's look at the clock and the poll. In an unoptimised build, and on
/// a machine that runs other tests beside this one, that moment is long.
fn allowed(kind: &str, pauses: usize) -> usize {
    match (kind, cfg!(debug_assertions)) {
        ("busy", true) => pauses / 5,
        ("busy", false) => pauses.div_ceil(100),
        (_, true) => 1,
        (_, false) => 0,
    }
}

fn pauses() -> usize {
    std::env::var("DISTLOCK_PAUSES").map_or(25, |text| text.parse().expect("`DISTLOCK_PAUSES` must be a number"))
}

/// Counts the polls of a body that begin past its deadline. A poll that began before it runs on to its next await, and
/// nothing can stop that.
async fn counting(lease: &Lease, stale: &mut usize, body: impl Future<Output = ()>) {
    let mut body = std::pin::pin!(body);
    std::future::poll_fn(|cx| {
        *stale += usize::from(!lease.is_held());
        body.as_mut().poll(cx)
    })
    .await;
}

/// Not a test of its own: takes the lock as often as it is told to, and says how many steps began too late.
#[test]
fn paused() {
    let (Ok(url), Ok(kind), Ok(threads)) = (std::env::var(URL), std::env::var(BODY), std::env::var(THREADS)) else {
        return;
    };
    let mut builder = match threads.as_str() {
        "one" => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    builder.enable_all().build().unwrap().block_on(async {
        let locks = LockManager::connect(url).await.unwrap();
        let (mut lines, mut line) = (BufReader::new(std::io::stdin()), String::new());
        while lines.read_line(&mut line).unwrap() > 0 {
            line.clear();
            let mut stale = 0;
            let key = format!("{kind}-{threads}");
            let out = locks
                .lock(key)
                .ttl(TTL)
                .wait(ms(5000))
                .run(async |lease| counting(lease, &mut stale, body(&kind)).await)
                .await;
            say(&format!("out {stale} {}", out.is_err()));
        }
    });
}

async fn body(kind: &str) {
    let (sender, mut ticks) = tokio::sync::mpsc::channel(1);
    if kind == "channel" {
        tokio::spawn(async move {
            while sender.send(()).await.is_ok() {
                tokio::time::sleep(ms(1)).await;
            }
        });
    }
    say("in");
    loop {
        match kind {
            "timer" => tokio::time::sleep(ms(1)).await,
            "channel" => drop(ticks.recv().await),
            _ => {
                // Some work in each step: the less there is, the larger the share of the guard's own moment.
                let begun = std::time::Instant::now();
                while begun.elapsed() < Duration::from_micros(20) {
                    std::hint::spin_loop();
                }
                tokio::task::yield_now().await;
            }
        }
    }
}

/// A line for the parent, past the test harness's own capture.
fn say(line: &str) {
    let mut out = std::io::stderr().lock();
    writeln!(out, "{line}").unwrap();
}

/// How many of the pauses led to a step after the deadline.
fn stale_pauses(url: &str, kind: &str, threads: &str, pauses: usize) -> usize {
    let mut worker = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "pauses::paused", "--nocapture"])
        .envs([(URL, url), (BODY, kind), (THREADS, threads)])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut tell = worker.stdin.take().unwrap();
    let mut lines = BufReader::new(worker.stderr.take().unwrap()).lines().map(Result::unwrap);
    let mut stale = 0;
    for number in 0..pauses {
        tell.write_all(b"go\n").unwrap();
        assert_eq!(lines.next().as_deref(), Some("in"), "{kind} on {threads}");
        // At different moments of the body and of the renewals.
        std::thread::sleep(Duration::from_micros(1_000 + 731 * (number as u64 % 40)));
        process::freeze(&worker).unwrap();
        std::thread::sleep(STOPPED);
        process::thaw(&worker).unwrap();
        let out = lines.next().unwrap();
        let [_, steps, lost] = out.split(' ').collect::<Vec<_>>()[..] else { panic!("{out}") };
        assert_eq!(lost, "true", "{kind} on {threads}: the loss was not told");
        stale += usize::from(steps != "0");
    }
    drop(tell);
    assert!(worker.wait().unwrap().success());
    stale
}

#[test]
fn a_stopped_holder_takes_no_step_after_its_deadline() {
    let server = server_or_skip!();
    let (url, pauses) = (server.url(), pauses());
    let of =
        &|(kind, threads): (&'static str, &'static str)| (kind, threads, stale_pauses(&url, kind, threads, pauses));
    // Bodies that wait leave the machine idle and can be stopped side by side; busy ones would stop each other.
    let mut found = Vec::new();
    std::thread::scope(|scope| {
        let waiting = [("timer", "one"), ("timer", "many"), ("channel", "one"), ("channel", "many")];
        let running = waiting.map(|body| scope.spawn(move || of(body)));
        found.extend(running.map(|thread| thread.join().unwrap()));
    });
    found.extend([("busy", "one"), ("busy", "many")].map(of));
    println!("pauses with a late step, of {pauses} each: {found:?}");
    for (kind, threads, stale) in found {
        assert!(stale <= allowed(kind, pauses), "{kind} on {threads}: {stale} of {pauses}");
    }
}

//! Processes of a line: this program again, with the hidden word `child`. They tell what they saw on standard output.

use std::future::pending;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use distlock::{LockError, LockManager, distributed_lock};
use distlock_testkit::{Fault, FaultProxy, Match, Moment};

use crate::Result;
use crate::contenders::{AsyncRedisLock, Contender, Distlock, Rlock, Rslock};

/// Starts this program as a child of this kind.
pub(crate) fn start(words: &[&str]) -> Result<Child> {
    let program = std::env::current_exe()?;
    let child = Command::new(program).arg("child").args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    Ok(child)
}

/// The next line that a child says.
pub(crate) fn next_line(child: &mut Child) -> Result<String> {
    let mut line = String::new();
    let output = child.stdout.as_mut().ok_or("a child without an output")?;
    // One byte at a time: what stands behind the line is for whoever reads on.
    let mut byte = [0];
    while output.read(&mut byte)? == 1 && byte != *b"\n" {
        line.push(char::from(byte[0]));
    }
    if line.is_empty() { Err("a child ended without a word".into()) } else { Ok(line) }
}

/// All that a child still has to say, until it ends.
pub(crate) fn rest(mut child: Child) -> Result<Vec<String>> {
    let output = child.stdout.take().ok_or("a child without an output")?;
    let lines = BufReader::new(output).lines().collect::<Result<Vec<_>, _>>()?;
    let status = child.wait()?;
    if status.success() { Ok(lines) } else { Err(format!("a child ended with {status}").into()) }
}

/// What a child does.
pub(crate) fn main(words: &[String]) -> Result<()> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match words.as_slice() {
        ["contend", url, tasks, body, start, end] => {
            let span = (moment(start)?, moment(end)?);
            runtime.block_on(contend(url, tasks.parse()?, Duration::from_micros(body.parse()?), span))
        }
        ["hammer", name, url, start, end] => {
            let span = (moment(start)?, moment(end)?);
            let count = match *name {
                Distlock::NAME => runtime.block_on(hammer::<Distlock>(url, span)),
                Rslock::NAME => runtime.block_on(hammer::<Rslock>(url, span)),
                Rlock::NAME => runtime.block_on(hammer::<Rlock>(url, span)),
                AsyncRedisLock::NAME => runtime.block_on(hammer::<AsyncRedisLock>(url, span)),
                other => Err(format!("there is no contender `{other}`").into()),
            };
            println!("{}", count?);
            Ok(())
        }
        ["hold", url, ttl] => runtime.block_on(hold(url, Duration::from_millis(ttl.parse()?))),
        ["delay", port, micros] => runtime.block_on(delay(port.parse()?, Duration::from_micros(micros.parse()?))),
        other => Err(format!("there is no child `{}`", other.join(" ")).into()),
    }
}

fn moment(nanos: &str) -> Result<Moment> {
    Ok(Moment::from_nanos(nanos.parse()?))
}

async fn sleep_until(moment: Moment) {
    tokio::time::sleep(moment.since(Moment::now())).await;
}

/// One hold: fencing token, first and last moment of the body.
type Held = (u64, Moment, Moment);

#[distributed_lock(key = "contended", ttl = "5s", wait = forever, manager = locks, lease = lease)]
async fn contended(locks: &LockManager, body: Duration) -> Result<Held, LockError> {
    let begun = Moment::now();
    if !body.is_zero() {
        tokio::time::sleep(body).await;
    }
    Ok((lease.fencing_token(), begun, Moment::now()))
}

/// Takes one key again and again in some tasks, and says each hold.
async fn contend(url: &str, tasks: usize, body: Duration, (start, end): (Moment, Moment)) -> Result<()> {
    let locks = LockManager::connect(url).await?;
    // The first call joins the channel on which waiters are told of their turn; that is not what is measured.
    sleep_until(start).await;
    let mut set = tokio::task::JoinSet::new();
    for _ in 0..tasks {
        let locks = locks.clone();
        set.spawn(async move {
            let mut held = Vec::new();
            while Moment::now() < end {
                held.push(contended(&locks, body).await?);
            }
            Ok::<_, LockError>(held)
        });
    }
    let mut out = String::new();
    while let Some(held) = set.join_next().await {
        for (token, begun, ended) in held?? {
            out += &format!("{token} {} {}\n", begun.as_nanos(), ended.as_nanos());
        }
    }
    std::io::stdout().write_all(out.as_bytes())?;
    locks.shutdown(Duration::from_secs(2)).await;
    Ok(())
}

/// Takes one key again and again in one task, and counts.
async fn hammer<C: Contender>(url: &str, (start, end): (Moment, Moment)) -> Result<u64> {
    let contender = C::connect(url).await?;
    sleep_until(start).await;
    let mut count = 0;
    while Moment::now() < end {
        // One that is still waiting at the end is not waited for.
        match tokio::time::timeout(end.since(Moment::now()), contender.cycle(0)).await {
            Ok(done) => done?,
            Err(_elapsed) => break,
        }
        count += 1;
    }
    Ok(count)
}

#[distributed_lock(key = "crashed", ttl = ttl, manager = locks)]
async fn held_for_ever(locks: &LockManager, ttl: Duration) -> Result<(), LockError> {
    println!("held");
    pending().await
}

/// Holds a key until it is killed.
async fn hold(url: &str, ttl: Duration) -> Result<()> {
    let locks = LockManager::connect(url).await?;
    Ok(held_for_ever(&locks, ttl).await?)
}

/// A proxy that passes every command on this much later, until its standard input ends. So each trip is late once, those
/// that a push begins as well.
async fn delay(port: u16, by: Duration) -> Result<()> {
    let proxy = FaultProxy::start(port).await?;
    let _late = proxy.inject(Match::every(), Fault::DelayCommand(by));
    println!("{}", proxy.port());
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
    Ok(())
}

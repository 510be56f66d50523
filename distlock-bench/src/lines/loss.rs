//! The server freezes, and every connection with it: how long after its deadline a lease is known to be lost.

use std::future::pending;
use std::time::{Duration, Instant};

use distlock::{LeaseHandle, LockError, LockManager, distributed_lock};
use distlock_testkit::Server;
use tokio::sync::oneshot;

use crate::Result;
use crate::bench::{Bench, millis_of};
use crate::figures::Sample;
use crate::report::{Line, Report};

#[distributed_lock(key = "frozen", ttl = "1s", manager = locks, lease = lease)]
async fn until_lost(locks: &LockManager, tell: oneshot::Sender<LeaseHandle>) -> Result<(), LockError> {
    let _ = tell.send(lease.handle());
    pending().await
}

pub(crate) fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    let server = bench.server()?;
    let runtime = bench.runtime()?;
    let (mut signals, mut calls) = (Vec::new(), Vec::new());
    for _ in 0..bench.pick(10, 3) {
        let (signal, call) = runtime.block_on(freeze(&server))?;
        signals.push(signal);
        calls.push(call);
    }
    let (signals, calls) = (Sample::new(signals), Sample::new(calls));
    report.add(Line {
        line: "server frozen: loss signalled after the deadline".to_owned(),
        figure: signals.max(),
        unit: "ms",
        target: "<= 50 ms".to_owned(),
        holds: Some(signals.max() <= 50.0 && calls.max() <= 50.0),
        note: format!(
            "worst of {}, median {:.1} ms; the call had returned at most {:.1} ms after it",
            signals.len(),
            signals.median(),
            calls.max()
        ),
        ..Line::default()
    });
    Ok(())
}

/// How late, in milliseconds, the loss of a lease was told, and the call returned that had it.
async fn freeze(server: &Server) -> Result<(f64, f64)> {
    let locks = LockManager::connect(server.url()).await?;
    let (tell, told) = oneshot::channel();
    let call = tokio::spawn({
        let locks = locks.clone();
        async move { (until_lost(&locks, tell).await, Instant::now()) }
    });
    let lease = told.await?;
    server.pause()?;
    // A renewal that was under way is answered by now or never.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let deadline = Instant::now() + lease.remaining();
    lease.lost().await;
    let signalled = Instant::now();
    let (outcome, returned) = call.await?;
    server.resume()?;
    if !outcome.is_err_and(|error| error.is_lost()) {
        return Err("the call ended otherwise than by the loss of its lease".into());
    }
    locks.shutdown(Duration::from_secs(2)).await;
    let late = |at: Instant| millis_of(at.saturating_duration_since(deadline));
    Ok((late(signalled), late(returned)))
}

//! Ten thousand leases held by one process: what it sends to keep them, and what each weighs.

use std::time::{Duration, Instant};

use distlock::{Lease, LockManager};

use crate::Result;
use crate::bench::{Bench, commands_sent};
use crate::place::resident_bytes;
use crate::report::{Line, Report};

const LEASES: usize = 10_000;
const TTL: Duration = Duration::from_secs(3);

pub(crate) fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    let server = bench.server()?;
    let span = Duration::from_secs(bench.pick(60, 10));
    // On this thread, so that what is allocated for a lease is counted.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let locks = runtime.block_on(LockManager::connect(server.url()))?;
    runtime.block_on(take(&locks, 0..100))?;
    let resident = resident_bytes()?;
    let mut held = Err("nothing was taken".into());
    let counted = allocation_counter::measure(|| held = runtime.block_on(take(&locks, 100..LEASES + 100)));
    let held = held?;
    let (lost, scripts) = runtime.block_on(async {
        let begun = Instant::now();
        let before = commands_sent(&server)?;
        tokio::time::sleep(span).await;
        let scripts = (commands_sent(&server)? - before) as f64 / begun.elapsed().as_secs_f64();
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>((
            held.iter().filter(|lease| !lease.is_held()).count(),
            scripts,
        ))
    })?;
    let in_memory = resident_bytes()?.saturating_sub(resident) as f64 / LEASES as f64;
    let heap = counted.bytes_current as f64 / LEASES as f64;
    report.add(Line {
        line: format!("10,000 leases of ttl 3 s, held for {} s: lost", span.as_secs()),
        figure: lost as f64,
        unit: "leases",
        target: "= 0".to_owned(),
        holds: Some(lost == 0),
        ..Line::default()
    });
    report.add(Line {
        line: "10,000 leases of ttl 3 s: renewals".to_owned(),
        figure: scripts,
        unit: "scripts/s",
        target: "<= 110".to_owned(),
        holds: Some(scripts <= 110.0),
        note: "as the server counts them".to_owned(),
        ..Line::default()
    });
    report.add(Line {
        line: "10,000 leases: heap of each".to_owned(),
        figure: heap,
        unit: "bytes",
        target: "<= 1024".to_owned(),
        holds: Some(heap <= 1024.0),
        note: format!(
            "counted at the allocator; resident memory grew by {in_memory:.0} bytes each over the whole time"
        ),
        ..Line::default()
    });
    runtime.block_on(async move {
        drop(held);
        locks.shutdown(Duration::from_secs(10)).await;
    });
    Ok(())
}

async fn take(locks: &LockManager, keys: std::ops::Range<usize>) -> Result<Vec<Lease>> {
    let mut held = Vec::with_capacity(keys.len());
    for key in keys {
        held.push(locks.lock(format!("held:{key}")).ttl(TTL).acquire().await?);
    }
    Ok(held)
}

//! The holder is killed: when its waiter is in, and what it has sent until then.

use std::time::{Duration, Instant};

use distlock::LockManager;

use crate::Result;
use crate::bench::{Bench, commands_sent, millis_of};
use crate::child;
use crate::figures::Sample;
use crate::report::{Line, Report};

/// What a waiter may take beyond the ttl.
const MARGIN: Duration = Duration::from_millis(250);

pub(crate) fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    let ttl = Duration::from_millis(bench.pick(5000, 2000));
    let server = bench.server()?;
    let url = server.url();
    let mut late = Vec::new();
    let mut most_sent = 0;
    let runtime = bench.runtime()?;
    for _ in 0..bench.pick(5, 1) {
        let mut holder = child::start(&["hold", &url, &ttl.as_millis().to_string()])?;
        child::next_line(&mut holder)?;
        let (waited, sent) = runtime.block_on(async {
            let locks = LockManager::connect(&*url).await?;
            let waiter = locks.lock("crashed").ttl(ttl).wait_forever();
            let waiter = tokio::spawn(async move { waiter.acquire().await });
            // In line when it happens, and right after a renewal: the worst moment.
            tokio::time::sleep(ttl / 3 + Duration::from_millis(50)).await;
            let before = commands_sent(&server)?;
            holder.kill()?;
            let killed_at = Instant::now();
            holder.wait()?;
            let lease = waiter.await??;
            let waited = killed_at.elapsed();
            let sent = commands_sent(&server)? - before;
            lease.release().await?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>((waited, sent))
        })?;
        late.push(millis_of(waited));
        most_sent = most_sent.max(sent);
    }
    let late = Sample::new(late);
    let limit = millis_of(ttl + MARGIN);
    report.add(Line {
        line: format!("holder killed, ttl {ttl:?}: waiter in after"),
        figure: late.max(),
        unit: "ms",
        ratio: Some(late.max() / millis_of(ttl)),
        target: "<= ttl + 250 ms".to_owned(),
        holds: Some(late.max() <= limit),
        note: format!("worst of {}, median {:.0} ms", late.len(), late.median()),
    });
    report.add(Line {
        line: format!("holder killed, ttl {ttl:?}: commands of the waiter"),
        figure: most_sent as f64,
        unit: "commands",
        target: "< 20".to_owned(),
        holds: Some(most_sent < 20),
        note: "from the kill until it is in, the most of all tries".to_owned(),
        ..Line::default()
    });
    Ok(())
}

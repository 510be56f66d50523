//! One key that everybody wants, with nothing to do under it: in the tasks of one process, and in one task of each of
//! eight processes.

use std::time::Duration;

use distlock_testkit::Moment;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::Result;
use crate::bench::Bench;
use crate::child;
use crate::contenders::{AsyncRedisLock, Contender, Distlock, Rlock, Rslock};
use crate::report::{Chart, Line, Report};

const TASKS: usize = 64;
const PROCESSES: usize = 8;

pub(crate) fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    let server = bench.server()?;
    let url = server.url();
    let span = Duration::from_millis(bench.pick(5000, 800));
    let rates = bench.runtime()?.block_on(async {
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(vec![
            crowd::<Distlock>(&url, span).await?,
            crowd::<Rslock>(&url, span).await?,
            crowd::<Rlock>(&url, span).await?,
            crowd::<AsyncRedisLock>(&url, span).await?,
        ])
    })?;
    tell(report, "hot key, 64 tasks of one process", rates, Some(50.0));
    Ok(())
}

pub(crate) fn run_processes(bench: &Bench, report: &mut Report) -> Result<()> {
    let server = bench.server()?;
    let span = Duration::from_millis(bench.pick(4000, 800));
    let mut rates = Vec::new();
    for name in [Distlock::NAME, Rslock::NAME, Rlock::NAME, AsyncRedisLock::NAME] {
        let start = Moment::now() + Duration::from_millis(300);
        let end = (start + span).as_nanos().to_string();
        let start = start.as_nanos().to_string();
        let children = (0..PROCESSES)
            .map(|_| child::start(&["hammer", name, &server.url(), &start, &end]))
            .collect::<Result<Vec<_>>>()?;
        let mut shares = Vec::new();
        for child in children {
            shares.push(child::rest(child)?.first().map_or(Ok(0), |line| line.parse::<u64>())?);
        }
        let count: u64 = shares.iter().sum();
        rates.push(Rate {
            name,
            per_second: count as f64 / span.as_secs_f64(),
            note: format!("each process: {shares:?}"),
        });
    }
    tell(report, "hot key, one task of each of 8 processes", rates, None);
    Ok(())
}

/// How many calls a contender made.
struct Rate {
    name: &'static str,
    per_second: f64,
    note: String,
}

/// The first is ours; the others are what it is compared with.
fn tell(report: &mut Report, what: &str, rates: Vec<Rate>, least: Option<f64>) {
    let fastest = rates.iter().skip(1).map(|rate| rate.per_second).fold(0.0, f64::max);
    for (place, Rate { name, per_second, note }) in rates.iter().enumerate() {
        let ratio = per_second / fastest;
        let least = least.filter(|_| place == 0);
        report.add(Line {
            line: format!("{what}: {name}"),
            figure: *per_second,
            unit: "calls/s",
            ratio: (place == 0).then_some(ratio),
            target: least.map_or(String::new(), |least| format!(">= {least}x")),
            holds: least.map(|least| ratio >= least),
            note: note.clone(),
        });
    }
    let bars = rates.into_iter().map(|rate| (rate.name.to_owned(), rate.per_second)).collect();
    report.draw(Chart::Bars { title: what.to_owned(), unit: "calls/s", bars });
}

/// Calls of all tasks together.
async fn crowd<C: Contender>(url: &str, span: Duration) -> Result<Rate> {
    let contender = C::connect(url).await?;
    contender.cycle(0).await?;
    let begun = Instant::now();
    let end = begun + span;
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let contender = contender.clone();
        tasks.spawn(async move {
            let mut count = 0_u64;
            // One that is still waiting at the end is not waited for.
            while let Ok(done) = tokio::time::timeout_at(end, contender.cycle(0)).await {
                done?;
                count += 1;
            }
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(count)
        });
    }
    let mut shares = Vec::new();
    while let Some(done) = tasks.join_next().await {
        shares.push(done??);
    }
    let (most, least) = (shares.iter().max(), shares.iter().min());
    let note = format!("a task made {} to {} of them", least.copied().unwrap_or(0), most.copied().unwrap_or(0));
    Ok(Rate { name: C::NAME, per_second: shares.iter().sum::<u64>() as f64 / span.as_secs_f64(), note })
}

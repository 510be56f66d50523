//! Many tasks, each with a key of its own: what the locks cost when the machine is full.

use std::time::Instant;

use tokio::task::JoinSet;

use crate::Result;
use crate::bench::Bench;
use crate::contenders::{AsyncRedisLock, Bare, Contender, Distlock, Rlock, Rslock};
use crate::figures::Sample;
use crate::report::{Chart, Line, Report};

const TASKS: u64 = 64;

pub(crate) fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    let server = bench.server()?;
    let url = server.url();
    let (rounds, cycles) = (bench.pick(20, 8), bench.pick(300, 100));
    let series = bench.runtime()?.block_on(async {
        let bare = Bare::connect(&url).await?;
        let ours = Distlock::connect(&url).await?;
        let rslock = Rslock::connect(&url).await?;
        let rlock = Rlock::connect(&url).await?;
        let async_redis_lock = AsyncRedisLock::connect(&url).await?;
        let mut series = [Bare::NAME, Distlock::NAME, Rslock::NAME, Rlock::NAME, AsyncRedisLock::NAME]
            .map(|name| (name, Vec::new()));
        for round in 0..=rounds {
            let per_second = [
                full(&bare, cycles).await?,
                full(&ours, cycles).await?,
                full(&rslock, cycles / 4).await?,
                full(&rlock, cycles / 4).await?,
                full(&async_redis_lock, cycles / 4).await?,
            ];
            // The first round warms up.
            if round > 0 {
                series.iter_mut().zip(per_second).for_each(|((_, own), per_second)| own.push(per_second));
            }
        }
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(series)
    })?;
    let floor = series[0].1.clone();
    let mut bars = Vec::new();
    for (name, own) in &series {
        let ratios = Sample::new(own.iter().zip(&floor).map(|(own, floor)| own / floor));
        let sample = Sample::new(own.iter().copied());
        let (low, high) = sample.spread();
        let judged = *name == Distlock::NAME;
        report.add(Line {
            line: format!("64 tasks x 64 keys: {name}"),
            figure: sample.median(),
            unit: "calls/s",
            ratio: Some(ratios.median()),
            target: if judged { ">= 0.85x".to_owned() } else { String::new() },
            holds: judged.then(|| ratios.median() >= 0.85),
            note: format!("half of the rounds {low:.0} to {high:.0}"),
        });
        bars.push(((*name).to_owned(), sample.median()));
    }
    report.draw(Chart::Bars { title: "64 tasks, 64 keys".to_owned(), unit: "calls/s", bars });
    Ok(())
}

/// Calls per second.
async fn full<C: Contender>(contender: &C, cycles: u64) -> Result<f64> {
    let begun = Instant::now();
    let mut tasks = JoinSet::new();
    for key in 0..TASKS {
        let contender = contender.clone();
        tasks.spawn(async move {
            for _ in 0..cycles {
                contender.cycle(key).await?;
            }
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok((TASKS * cycles) as f64 / begun.elapsed().as_secs_f64())
}

//! Many tasks, each with a key of its own: what the locks cost when the machine is full.

use std::time::Instant;

use distlock_testkit::Server;
use tokio::task::JoinSet;

use crate::Result;
use crate::bench::Bench;
use crate::contenders::{Contender, Distlock};
use crate::report::{Chart, Line, Report};
use crate::rounds::{Round, Rounds, Series, take_turns};

const TASKS: u64 = 64;

pub(crate) fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    let server = bench.server()?;
    let rounds = Rounds::pick(bench, (20, 200), (5, 30));
    let round = AllAtOnce { server: &server };
    let series = bench.runtime()?.block_on(take_turns(&server.url(), rounds, &round))?;
    let floor = &series[0];
    for series in &series {
        let (rates, ratios) = (series.sample(), series.ratios(floor));
        let (low, high) = rates.spread();
        let judged = series.name == Distlock::NAME;
        report.add(Line {
            line: format!("64 tasks x 64 keys: {}", series.name),
            figure: rates.median(),
            unit: "calls/s",
            ratio: Some(ratios.median()),
            target: if judged { ">= 0.85x".to_owned() } else { String::new() },
            holds: judged.then(|| ratios.median() >= 0.85),
            note: format!("half of the rounds {low:.0} to {high:.0}; {}", series.cpu()),
        });
    }
    let bars = series.iter().map(|series| (series.name.to_owned(), series.sample().median())).collect();
    report.draw(Chart::Bars { title: "64 tasks, 64 keys".to_owned(), unit: "calls/s", bars });
    Ok(())
}

/// So many cycles in each of the tasks at once.
struct AllAtOnce<'a> {
    server: &'a Server,
}

impl Round for AllAtOnce<'_> {
    async fn run<C: Contender>(&self, contender: &C, series: &mut Series, count: u64) -> Result<()> {
        let begun = Instant::now();
        let crowd = async {
            let mut tasks = JoinSet::new();
            for key in 0..TASKS {
                let contender = contender.clone();
                tasks.spawn(async move {
                    for _ in 0..count {
                        contender.cycle(key).await?;
                    }
                    Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
                });
            }
            while let Some(done) = tasks.join_next().await {
                done??;
            }
            Ok(())
        };
        let all = TASKS * count;
        series.watch(self.server, all, crowd).await?;
        series.rounds.push(all as f64 / begun.elapsed().as_secs_f64());
        Ok(())
    }
}

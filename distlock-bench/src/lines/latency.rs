//! Uncontended: one task takes and gives back a key that nobody else wants.

use std::time::{Duration, Instant};

use distlock_testkit::{Connection, Server};

use crate::Result;
use crate::bench::{Bench, micros_of, ping_on};
use crate::child;
use crate::contenders::{Contender, Distlock};
use crate::figures::Sample;
use crate::report::{Chart, Line, Report};
use crate::rounds::{Round, Rounds, Series, take_turns};

/// By how much the slow link is told to be late. The proxy's timer makes it more; `PING` says how much.
const DELAY: Duration = Duration::from_micros(500);

pub(crate) fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    let server = bench.server()?;
    let rounds = Rounds::pick(bench, (40, 500), (10, 150));
    measure(bench, report, &server, &server.url(), rounds, "")
}

/// The same where the network is slower than the code, as networks are.
pub(crate) fn run_slow(bench: &Bench, report: &mut Report) -> Result<()> {
    let server = bench.server()?;
    let link = Link::start(bench, &server)?;
    let rounds = Rounds::pick(bench, (20, 100), (5, 20));
    measure(bench, report, &server, &link.url(), rounds, " on a slow link")
}

/// A proxy in a process of its own that passes every command on later.
pub(crate) struct Link {
    port: u16,
    /// Ends with its standard input.
    process: std::process::Child,
}

impl Link {
    pub(crate) fn start(bench: &Bench, server: &Server) -> Result<Self> {
        let mut process = child::start(&["delay", &server.port().to_string(), &DELAY.as_micros().to_string()])?;
        bench.cores.pin_server(process.id())?;
        let port = child::next_line(&mut process)?.parse()?;
        Ok(Self { port, process })
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        // It ends by itself; waiting leaves no zombie.
        let _ = self.process.wait();
    }
}

fn measure(bench: &Bench, report: &mut Report, server: &Server, url: &str, rounds: Rounds, place: &str) -> Result<()> {
    let mut series = bench.runtime()?.block_on(take_turns(url, rounds, &OneByOne { server }))?;
    let floor = series[0].clone();
    for series in &series {
        let (medians, ratios) = (series.sample(), series.ratios(&floor));
        let (low, high) = medians.spread();
        let (least, most) = ratios.spread();
        let judged = series.name == Distlock::NAME && place.is_empty();
        report.add(Line {
            line: format!("uncontended call{place}: {}", series.name),
            figure: medians.median(),
            unit: "us",
            ratio: Some(ratios.median()),
            target: if judged { "<= 1.10x".to_owned() } else { String::new() },
            holds: judged.then(|| ratios.median() <= 1.10),
            note: format!("half of the rounds {low:.1} to {high:.1} us, {least:.2}x to {most:.2}x; {}", series.cpu()),
        });
    }
    let port = url.rsplit(':').next().unwrap_or_default().parse()?;
    let trips = Sample::new(ping_on(&mut Connection::open(port, None)?, bench.pick(3000, 300))?);
    report.add(Line {
        line: format!("raw round trip{place}: PING on a connection of its own"),
        figure: trips.median(),
        unit: "us",
        note: format!("p99 {:.1} us", trips.quantile(0.99)),
        ..Line::default()
    });
    let curves = series.drain(..).map(|series| (series.name.to_owned(), Sample::new(series.cycles))).collect();
    report.draw(Chart::Curves { title: format!("uncontended lock + unlock{place}"), unit: "us", curves });
    Ok(())
}

/// Cycles one after the other in one task.
struct OneByOne<'a> {
    server: &'a Server,
}

impl Round for OneByOne<'_> {
    async fn run<C: Contender>(&self, contender: &C, series: &mut Series, count: u64) -> Result<()> {
        let contender = contender.clone();
        // A task, not the thread that waits for it: as in a service, next to the connection's own task.
        let task = async move {
            let mut micros = Vec::with_capacity(usize::try_from(count)?);
            for _ in 0..count {
                let begun = Instant::now();
                contender.cycle(0).await?;
                micros.push(micros_of(begun.elapsed()));
            }
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(micros)
        };
        let micros = series.watch(self.server, count, async { tokio::spawn(task).await? }).await?;
        series.rounds.push(Sample::new(micros.iter().copied()).median());
        series.cycles.extend(micros);
        Ok(())
    }
}

//! Uncontended: one task takes and gives back a key that nobody else wants.

use std::time::{Duration, Instant};

use distlock_testkit::Server;

use crate::Result;
use crate::bench::{Bench, micros_of, ping};
use crate::child;
use crate::contenders::{AsyncRedisLock, Bare, Contender, Distlock, Rlock, Rslock};
use crate::figures::Sample;
use crate::report::{Chart, Line, Report};

/// How far the delayed link is, as a round trip.
pub(crate) const DELAY: Duration = Duration::from_micros(500);

pub(crate) fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    let server = bench.server()?;
    let rounds = Rounds { count: bench.pick(40, 12), cycles: bench.pick(1000, 250) };
    measure(bench, report, &server, &server.url(), rounds, "")
}

/// The same where the network is slower than the code, as networks are.
pub(crate) fn run_delayed(bench: &Bench, report: &mut Report) -> Result<()> {
    let server = bench.server()?;
    let link = Link::start(bench, &server)?;
    let rounds = Rounds { count: bench.pick(20, 8), cycles: bench.pick(200, 40) };
    measure(bench, report, &server, &link.url, rounds, ", link delayed by 0.5 ms")
}

/// A proxy in a process of its own that makes every answer later.
pub(crate) struct Link {
    pub(crate) url: String,
    /// Ends with its standard input.
    _process: std::process::Child,
}

impl Link {
    pub(crate) fn start(bench: &Bench, server: &Server) -> Result<Self> {
        let mut process = child::start(&["delay", &server.port().to_string(), &DELAY.as_micros().to_string()])?;
        bench.cores.pin_server(process.id())?;
        let port = child::next_line(&mut process)?;
        Ok(Self { url: format!("redis://127.0.0.1:{port}"), _process: process })
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        drop(self._process.stdin.take());
        // It ends by itself; waiting leaves no zombie.
        let _ = self._process.wait();
    }
}

#[derive(Clone, Copy)]
struct Rounds {
    count: usize,
    cycles: usize,
}

fn measure(bench: &Bench, report: &mut Report, server: &Server, url: &str, rounds: Rounds, place: &str) -> Result<()> {
    let runtime = bench.runtime()?;
    let mut series = runtime.block_on(async {
        let bare = Bare::connect(url).await?;
        let ours = Distlock::connect(url).await?;
        let rslock = Rslock::connect(url).await?;
        let rlock = Rlock::connect(url).await?;
        let async_redis_lock = AsyncRedisLock::connect(url).await?;
        let mut series = [Bare::NAME, Distlock::NAME, Rslock::NAME, Rlock::NAME, AsyncRedisLock::NAME].map(Series::new);
        for round in 0..=rounds.count {
            // Each contender is next to the floor of its own round, so that a busy minute strikes both.
            let [first, second, third, fourth, fifth] = &mut series;
            first.take(round, cycles(&bare, rounds.cycles).await?);
            second.take(round, cycles(&ours, rounds.cycles).await?);
            third.take(round, cycles(&rslock, rounds.cycles / 4).await?);
            fourth.take(round, cycles(&rlock, rounds.cycles / 4).await?);
            fifth.take(round, cycles(&async_redis_lock, rounds.cycles / 4).await?);
        }
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(series.to_vec())
    })?;
    let floor = series[0].medians.clone();
    for (place_of, series) in series.iter().enumerate() {
        let ratios = Sample::new(series.medians.iter().zip(&floor).map(|(own, floor)| own / floor));
        let medians = Sample::new(series.medians.iter().copied());
        let (low, high) = medians.spread();
        let (least, most) = ratios.spread();
        let judged = place_of == 1 && place.is_empty();
        report.add(Line {
            line: format!("uncontended lock + unlock{place}: {}", series.name),
            figure: medians.median(),
            unit: "us",
            ratio: Some(ratios.median()),
            target: if judged { "<= 1.10x".to_owned() } else { String::new() },
            holds: judged.then(|| ratios.median() <= 1.10),
            note: format!("half of the rounds {low:.1} to {high:.1} us, {least:.2}x to {most:.2}x"),
        });
    }
    if place.is_empty() {
        let trips = Sample::new(ping(server, bench.pick(5000, 1000))?);
        report.add(Line {
            line: "raw round trip (PING on a connection of its own)".to_owned(),
            figure: trips.median(),
            unit: "us",
            note: format!("p99 {:.1} us", trips.quantile(0.99)),
            ..Line::default()
        });
    }
    let curves = series.drain(..).map(|series| (series.name.to_owned(), Sample::new(series.all))).collect();
    report.draw(Chart::Curves { title: format!("uncontended lock + unlock{place}"), unit: "us", curves });
    Ok(())
}

#[derive(Clone)]
struct Series {
    name: &'static str,
    medians: Vec<f64>,
    all: Vec<f64>,
}

impl Series {
    fn new(name: &'static str) -> Self {
        Self { name, medians: Vec::new(), all: Vec::new() }
    }

    /// The first round warms up.
    fn take(&mut self, round: usize, micros: Vec<f64>) {
        if round > 0 {
            self.medians.push(Sample::new(micros.iter().copied()).median());
            self.all.extend(micros);
        }
    }
}

/// The time of each of so many cycles, one after the other in one task.
async fn cycles<C: Contender>(contender: &C, count: usize) -> Result<Vec<f64>> {
    let contender = contender.clone();
    // A task, not the thread that waits for it: as in a service, next to the connection's own task.
    tokio::spawn(async move {
        let mut micros = Vec::with_capacity(count);
        for _ in 0..count {
            let begun = Instant::now();
            contender.cycle(0).await?;
            micros.push(micros_of(begun.elapsed()));
        }
        Ok(micros)
    })
    .await?
}

//! From one process to the next: the time from the last moment of one body to the first moment of the next one, by the
//! clock that the processes share.

use std::time::Duration;

use distlock_testkit::{Connection, Moment, Server};

use super::latency::Link;
use crate::Result;
use crate::bench::{Bench, commands_sent, micros_of, ping_on};
use crate::child;
use crate::figures::Sample;
use crate::report::{Chart, Line, Report};

const PROCESSES: usize = 8;

/// Time for the processes to come up before the clock starts.
const COMING_UP: Duration = Duration::from_millis(500);

/// One hold of a contended key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold {
    pub(crate) process: usize,
    token: u64,
    begun: Moment,
    ended: Moment,
}

pub(crate) fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    let server = bench.server()?;
    measure(bench, report, &server, &server.url(), "")
}

/// The same where the network is slower than the code, as networks are.
pub(crate) fn run_slow(bench: &Bench, report: &mut Report) -> Result<()> {
    let server = bench.server()?;
    let link = Link::start(bench, &server)?;
    measure(bench, report, &server, &link.url(), " on a slow link")
}

fn measure(bench: &Bench, report: &mut Report, server: &Server, url: &str, place: &str) -> Result<()> {
    let through_link = !place.is_empty();
    let mut connection = Connection::open(url.rsplit(':').next().unwrap_or_default().parse()?, None)?;
    let times = match (through_link, bench.quick) {
        (false, false) => 3000,
        (true, true) => 100,
        _ => 500,
    };
    let mut trips = ping_on(&mut connection, times)?;
    let span = Duration::from_millis(bench.pick(5000, 1500));
    let before = commands_sent(server)?;
    let holds = contend(url, PROCESSES, 1, Duration::ZERO, span)?;
    let sent = commands_sent(server)? - before;
    trips.extend(ping_on(&mut connection, times)?);
    let trips = Sample::new(trips);
    let passed = holds.windows(2).filter(|pair| pair[0].process != pair[1].process);
    let passed = Sample::new(passed.map(|pair| micros_of(pair[1].begun.since(pair[0].ended))));
    if passed.len() == 0 {
        return Err("the key went from no process to another".into());
    }
    let overlaps = holds.windows(2).filter(|pair| pair[1].begun < pair[0].ended).count();
    let ratio = passed.median() / trips.median();
    report.add(Line {
        line: format!("hand-off between 8 processes{place}, p50"),
        figure: passed.median(),
        unit: "us",
        ratio: Some(ratio),
        target: if through_link { String::new() } else { "<= 4x PING".to_owned() },
        holds: (!through_link).then_some(ratio <= 4.0 && overlaps == 0),
        note: format!(
            "PING p50 {:.1} us; {} hand-offs of {} holds, {:.1} commands a hold, {overlaps} overlaps",
            trips.median(),
            passed.len(),
            holds.len(),
            sent as f64 / holds.len() as f64
        ),
    });
    report.add(Line {
        line: format!("hand-off between 8 processes{place}, p99"),
        figure: passed.quantile(0.99),
        unit: "us",
        ratio: Some(passed.quantile(0.99) / trips.quantile(0.99)),
        note: format!("PING p99 {:.1} us", trips.quantile(0.99)),
        ..Line::default()
    });
    let curves = vec![("hand-off".to_owned(), passed), ("PING".to_owned(), trips)];
    report.draw(Chart::Curves { title: format!("hand-off between processes{place}"), unit: "us", curves });
    Ok(())
}

/// Lets some tasks in some processes contend for one key. All holds, in the order of their fencing tokens.
pub(crate) fn contend(url: &str, processes: usize, tasks: usize, body: Duration, span: Duration) -> Result<Vec<Hold>> {
    let start = Moment::now() + COMING_UP;
    let (tasks, body) = (tasks.to_string(), body.as_micros().to_string());
    let (end, start) = ((start + span).as_nanos().to_string(), start.as_nanos().to_string());
    let children = (0..processes)
        .map(|_| child::start(&["contend", url, &tasks, &body, &start, &end]))
        .collect::<Result<Vec<_>>>()?;
    let mut holds = Vec::new();
    for (process, child) in children.into_iter().enumerate() {
        for line in child::rest(child)? {
            holds.push(hold(process, &line).ok_or_else(|| format!("a child said `{line}`"))?);
        }
    }
    holds.sort_by_key(|hold| hold.token);
    Ok(holds)
}

fn hold(process: usize, line: &str) -> Option<Hold> {
    let mut numbers = line.split(' ').map(|number| number.parse::<u64>().ok());
    let token = numbers.next()??;
    let begun = Moment::from_nanos(numbers.next()??);
    Some(Hold { process, token, begun, ended: Moment::from_nanos(numbers.next()??) })
}

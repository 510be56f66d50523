//! 64 waiters in 8 processes, with a millisecond of work under the key: what they send, and whether all get their share.

use std::time::Duration;

use super::hand_off::contend;
use crate::Result;
use crate::bench::{Bench, commands_sent};
use crate::report::{Chart, Line, Report};

const PROCESSES: usize = 8;
const TASKS: usize = 8;
const BODY: Duration = Duration::from_millis(1);

pub(crate) fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    let server = bench.server()?;
    let span = Duration::from_millis(bench.pick(20_000, 3000));
    let before = commands_sent(&server)?;
    let holds = contend(&server.url(), PROCESSES, TASKS, BODY, span)?;
    let sent = commands_sent(&server)? - before;
    let mut shares = [0_u32; PROCESSES];
    for hold in &holds {
        shares[hold.process] += 1;
    }
    let most = shares.iter().copied().max().unwrap_or_default();
    let least = shares.iter().copied().min().unwrap_or_default();
    let per_hold = sent as f64 / holds.len().max(1) as f64;
    report.add(Line {
        line: "64 waiters in 8 processes, 1 ms of work: commands".to_owned(),
        figure: per_hold,
        unit: "a hold",
        target: "<= 4".to_owned(),
        holds: Some(per_hold <= 4.0),
        note: format!("{sent} commands, {} holds", holds.len()),
        ..Line::default()
    });
    let ratio = f64::from(most) / f64::from(least.max(1));
    report.add(Line {
        line: "64 waiters in 8 processes, 1 ms of work: most / least holds".to_owned(),
        figure: ratio,
        unit: "",
        ratio: Some(ratio),
        target: "<= 1.2".to_owned(),
        holds: Some(least > 0 && ratio <= 1.2),
        note: format!("holds of each process: {shares:?}"),
    });
    let bars = shares.iter().enumerate().map(|(place, holds)| (format!("process {place}"), f64::from(*holds)));
    report.draw(Chart::Bars { title: "64 waiters in 8 processes".to_owned(), unit: "holds", bars: bars.collect() });
    Ok(())
}

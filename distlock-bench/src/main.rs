//! The figures of distlock beside those of other locks, in one run on one machine.
//!
//! `cargo run --release -p distlock-bench`, with `-- --quick` for a look; `docs/performance.md` says what the lines mean.
//! A line is a file in `lines`, the locks that are compared stand in `contenders`. Nothing here is asserted by a test:
//! the program says what it saw, and exits with 1 if a line does not hold.

mod bench;
mod child;
mod contenders;
mod draw;
mod figures;
mod lines;
mod options;
mod place;
mod report;
mod rounds;

use std::process::ExitCode;

use bench::Bench;
use lines::LINES;
use options::{HELP, Options, Wanted};
use place::{Cores, load};
use report::Report;

pub(crate) type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("distlock-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all is well.
fn run() -> Result<bool> {
    match options::parse(std::env::args().skip(1))? {
        Wanted::Help => println!("{HELP}"),
        Wanted::List => LINES.iter().for_each(|line| println!("{}", line.name)),
        Wanted::Child(words) => child::main(&words)?,
        Wanted::Bench(options) => return compare(&options),
    }
    Ok(true)
}

fn compare(options: &Options) -> Result<bool> {
    let bench = Bench { quick: options.quick, cores: Cores::find() };
    bench.cores.pin_clients()?;
    let mut report = Report::default();
    let place = match bench.cores.server {
        Some(core) => format!("server on core {core}, clients on {:?}", bench.cores.clients),
        None => "server and clients share the cores".to_owned(),
    };
    println!("{place}; load {}", load());
    let mut broken = false;
    let begun = std::time::Instant::now();
    for line in LINES.iter().filter(|line| options.wants(line.name)) {
        if line.compiles && options.quick {
            println!("       {}: left out by --quick", line.name);
        } else if let Err(error) = (line.run)(&bench, &mut report) {
            println!("FAILS  {}: {error}", line.name);
            broken = true;
        }
    }
    println!("load {}; {:.0} s", load(), begun.elapsed().as_secs_f64());
    let (json, svg) = (options.out.join("bench.json"), options.out.join("bench.svg"));
    std::fs::write(&json, report.json())?;
    std::fs::write(&svg, draw::svg(&format!("distlock-bench; {place}; load {}", load()), &report.charts))?;
    println!("{} and {} are written", json.display(), svg.display());
    Ok(report.all_hold() && !broken)
}

//! Searches the model of the hand-off, and shows that the search would notice: `cargo run --release -p distlock-model`.
//!
//! `-- --quick` leaves out what takes long, `-- --deep` adds what takes very long, `-- NAME` shows how one broken rule
//! goes wrong, step by step. The exit status is not 0 after a violation, a broken rule that nobody noticed, or a search
//! that did not end. docs/hand-off.md has the rules in words.

mod canonical;
mod client;
mod fault;
mod few;
mod model;
mod rules;
mod runs;
mod server;
mod world;

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model, Path};

use crate::model::{HandOff, Step};
use crate::rules::Rules;
use crate::runs::{Level, Run};
use crate::world::World;

fn main() -> ExitCode {
    let argument = std::env::args().nth(1);
    let level = match argument.as_deref() {
        None => Level::Full,
        Some("--quick") => Level::Quick,
        Some("--deep") => Level::Deep,
        Some(name) => return show(name),
    };
    let start = Instant::now();
    let sound = sound(level);
    let broken = broken();
    println!("{:.0} s in all", start.elapsed().as_secs_f64());
    if sound && broken { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The rules as they are must hold in every run.
fn sound(level: Level) -> bool {
    println!("clients calls faults kinds | states, seconds, most ticks idle | verdict");
    let mut good = true;
    for run in runs::sound().into_iter().filter(|run| run.level <= level) {
        print!("{}", describe(&run));
        let found = search(&run, HasDiscoveries::AnyFailures);
        good &= found.violations.is_empty() && found.complete;
        println!("| {found}");
        for violation in &found.violations {
            println!("{}", violation.trace);
        }
    }
    good
}

/// Each broken rule must be noticed by the property that is there for it, in a run that is clean without the break.
fn broken() -> bool {
    println!("broken rule | the same run with the rule | the broken one | verdict");
    let mut good = true;
    for (run, property) in runs::broken() {
        let mended = search(&run.mended(), HasDiscoveries::AnyFailures);
        let found = search(&run, HasDiscoveries::AnyOf(BTreeSet::from([property])));
        let steps = found.violations.iter().find(|violation| violation.property == property).map(|it| it.steps);
        let verdict = match steps {
            Some(steps) => format!("noticed after {steps} steps: {property}"),
            None => "SURVIVED".to_owned(),
        };
        println!("{:?} | {mended} | {} states | {verdict}", run.rules.mutant, found.states);
        good &= steps.is_some() && mended.violations.is_empty() && mended.complete;
    }
    good
}

/// How a broken rule goes wrong.
fn show(name: &str) -> ExitCode {
    let named = |run: &Run| format!("{:?}", run.rules.mutant).eq_ignore_ascii_case(name);
    let Some((run, property)) = runs::broken().into_iter().find(|(run, _)| named(run)) else {
        let names: Vec<_> = runs::broken().iter().map(|(run, _)| format!("{:?}", run.rules.mutant)).collect();
        eprintln!("there is no broken rule `{name}`; take --quick, --deep, or one of {}", names.join(", "));
        return ExitCode::FAILURE;
    };
    for violation in search(&run, HasDiscoveries::AnyOf(BTreeSet::from([property]))).violations {
        println!("{}: {}\n{}", violation.property, describe(&run), violation.trace);
    }
    ExitCode::SUCCESS
}

fn describe(run: &Run) -> String {
    let kinds = match (run.faults, run.kinds == fault::ALL) {
        (0, _) => "-".to_owned(),
        (_, true) => "any".to_owned(),
        (_, false) => format!("{:?}", run.kinds),
    };
    let mut text = format!("{} {} {} {kinds} ", run.clients, run.calls, run.faults);
    if run.two_keys() {
        let keys = ["-", "a", "b", "a+b"];
        let wants: Vec<_> = run.wants[..run.clients].iter().map(|&wants| keys[usize::from(wants)]).collect();
        text += &format!("keys {} ", wants.join(", "));
    }
    if run.hurried != 0 {
        text += &format!("{} without wait ", run.hurried.count_ones());
    }
    if run.rules.serve_last {
        text += "serve last ";
    }
    if run.rules.reserve > 1 {
        text += "hand-on ";
    }
    if run.rules.ttl != Rules::default().ttl {
        text += "other times ";
    }
    if run.rules.renew_ttl < run.rules.ttl {
        text += "short renewals ";
    }
    text
}

struct Violation {
    property: &'static str,
    steps: usize,
    trace: String,
}

struct Found {
    states: usize,
    time: Duration,
    most_idle: u8,
    complete: bool,
    violations: Vec<Violation>,
}

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} states, {:.1} s, idle {} | ", self.states, self.time.as_secs_f64(), self.most_idle)?;
        match (self.violations.as_slice(), self.complete) {
            ([], true) => write!(f, "clean"),
            ([], false) => write!(f, "NOT COMPLETE"),
            (violations, _) => {
                let names: Vec<_> =
                    violations.iter().map(|it| format!("{} ({} steps)", it.property, it.steps)).collect();
                write!(f, "VIOLATED: {}", names.join(", "))
            }
        }
    }
}

fn search(run: &Run, until: HasDiscoveries) -> Found {
    if run.two_keys() { search_keys::<2>(run, until) } else { search_keys::<1>(run, until) }
}

fn search_keys<const KEYS: usize>(run: &Run, until: HasDiscoveries) -> Found {
    let start = Instant::now();
    let most_idle = Arc::new(AtomicU8::new(0));
    let model = HandOff::<KEYS> { run: *run, most_idle: most_idle.clone() };
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get());
    let checker = model.checker().threads(threads).finish_when(until).spawn_bfs().join();
    let violations = checker.discoveries().into_iter().map(|(property, path)| violation(property, path)).collect();
    Found {
        states: checker.unique_state_count(),
        time: start.elapsed(),
        most_idle: most_idle.load(Ordering::Relaxed),
        complete: checker.is_done(),
        violations,
    }
}

/// Clients change their letters on the way: a state is stored under the least of its names.
fn violation<const KEYS: usize>(property: &'static str, path: Path<World<KEYS>, Step>) -> Violation {
    let steps = path.clone().into_actions().len();
    let trace = path.into_vec().into_iter().map(|(world, step)| match step {
        Some(step) => format!("{world}{step:?}\n"),
        None => format!("{world}"),
    });
    Violation { property, steps, trace: trace.collect() }
}

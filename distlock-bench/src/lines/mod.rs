//! The lines of the table, in its order. Each is a function of its own file.

mod build;
mod crash;
mod fairness;
mod hand_off;
mod held;
mod hot_key;
mod latency;
mod loss;
mod others;
mod redlock;
mod size;
mod throughput;
mod trips;

use crate::Result;
use crate::bench::Bench;
use crate::report::Report;

/// A line by name.
#[derive(Clone, Copy)]
pub(crate) struct Named {
    pub(crate) name: &'static str,
    /// Compiles other programs, which a quick run does not.
    pub(crate) compiles: bool,
    pub(crate) run: fn(&Bench, &mut Report) -> Result<()>,
}

const fn line(name: &'static str, run: fn(&Bench, &mut Report) -> Result<()>) -> Named {
    Named { name, compiles: false, run }
}

const fn compiling(name: &'static str, run: fn(&Bench, &mut Report) -> Result<()>) -> Named {
    Named { name, compiles: true, run }
}

pub(crate) const LINES: &[Named] = &[
    line("latency", latency::run),
    line("latency-slow-link", latency::run_slow),
    line("trips", trips::run),
    line("throughput", throughput::run),
    line("allocations", size::allocations),
    line("future-size", size::future),
    line("hot-key", hot_key::run),
    line("hot-key-processes", hot_key::run_processes),
    line("hand-off", hand_off::run),
    line("hand-off-slow-link", hand_off::run_slow),
    line("fairness", fairness::run),
    line("crash", crash::run),
    line("loss", loss::run),
    line("held", held::run),
    line("redlock", redlock::run),
    line("other-languages", others::run),
    compiling("expansion", build::expansion),
    compiling("build", build::cold),
];

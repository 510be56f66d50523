//! Running a scenario many times over, each time decided by a seed alone.
//!
//! A scenario runs on one thread under paused time, so its seed decides everything: what happens, when, and in which
//! order. [`simulate`] tries many seeds; one that fails is told with the command that repeats it and the trace it left.

use std::fmt::{self, Display};
use std::future::Future;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::time::{Instant, timeout};

/// The variable that names the one seed to run.
pub const SEED: &str = "DISTLOCK_SEED";

/// The variable that says how many seeds to run.
pub const SEEDS: &str = "DISTLOCK_SEEDS";

/// No scenario may take longer than this, in its own time.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// What a scenario is made of: chance, and a trace of what it did. Clones share both.
#[derive(Clone, Debug)]
pub struct World {
    seed: u64,
    begun: Instant,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    dice: fastrand::Rng,
    trace: Vec<String>,
}

impl World {
    fn new(seed: u64) -> Self {
        // The runtime's own jitter comes from this thread's generator.
        fastrand::seed(seed);
        let state = State { dice: fastrand::Rng::with_seed(seed), trace: Vec::new() };
        Self { seed, begun: Instant::now(), state: Arc::new(Mutex::new(state)) }
    }

    /// The seed that decides this run.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// A number from the range.
    #[must_use]
    pub fn number(&self, range: std::ops::Range<u64>) -> u64 {
        self.with(|state| state.dice.u64(range))
    }

    /// A whole number of milliseconds from the range.
    #[must_use]
    pub fn millis(&self, range: std::ops::Range<u64>) -> Duration {
        Duration::from_millis(self.number(range))
    }

    /// True in so many of a hundred cases.
    #[must_use]
    pub fn chance(&self, percent: u64) -> bool {
        self.number(0..100) < percent
    }

    /// One of the choices.
    ///
    /// # Panics
    ///
    /// If there is none.
    #[must_use]
    pub fn one_of<'a, T>(&self, choices: &'a [T]) -> &'a T {
        let count = u64::try_from(choices.len()).unwrap_or(u64::MAX);
        &choices[usize::try_from(self.number(0..count)).unwrap_or_default()]
    }

    /// How much time has passed in the scenario.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Adds a line to the trace.
    pub fn note(&self, event: impl Display) {
        let line = format!("{:>12.3} ms  {event}", self.elapsed().as_secs_f64() * 1000.0);
        self.with(|state| state.trace.push(line));
    }

    fn with<R>(&self, work: impl FnOnce(&mut State) -> R) -> R {
        work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What a run did, line by line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    lines: Vec<String>,
}

impl Trace {
    /// The lines, each with its time in the scenario.
    #[must_use]
    pub fn lines(&self) -> &[String] {
        &self.lines
    }
}

impl Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// Runs the scenario with one seed and gives its trace.
///
/// # Panics
///
/// With what the scenario panics with, after its trace was printed.
pub fn run<F: Future<Output = ()>>(seed: u64, scenario: impl FnOnce(World) -> F) -> Trace {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap_or_else(|error| panic!("the simulation's runtime cannot be built: {error}"));
    let world = runtime.block_on(async { World::new(seed) });
    let shared = world.clone();
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let ended = runtime.block_on(async { timeout(LONGEST, scenario(shared)).await });
        assert!(ended.is_ok(), "the scenario did not end within {LONGEST:?} of its own time");
    }));
    let trace = Trace { lines: world.with(|state| std::mem::take(&mut state.trace)) };
    if let Err(panic) = outcome {
        eprintln!("trace of seed {seed}:\n{trace}");
        resume_unwind(panic);
    }
    trace
}

/// Runs the scenario with seeds from 0 to `count`, or as the variables [`SEED`] and [`SEEDS`] say.
///
/// `repeat` is the command that runs this scenario again, without the seed. The seeds are shared out among as many threads
/// as the machine can run; each seed stays on its thread.
///
/// # Panics
///
/// At the first seed that fails, after the command that repeats it was printed.
pub fn simulate<F: Future<Output = ()>>(count: u64, repeat: &str, scenario: impl Fn(World) -> F + Sync) {
    let number = |name| {
        std::env::var(name)
            .ok()
            .map(|text| text.parse::<u64>().unwrap_or_else(|_| panic!("`{name}` is no number: `{text}`")))
    };
    let seeds = match (number(SEED), number(SEEDS)) {
        (Some(seed), _) => seed..seed.saturating_add(1),
        (None, count_given) => 0..count_given.unwrap_or(count),
    };
    let (next, failed) = (AtomicU64::new(seeds.start), Mutex::new(None));
    thread::scope(|threads| {
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
            threads.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if !seeds.contains(&seed) {
                        return;
                    }
                    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(seed, &scenario))) {
                        eprintln!("seed {seed} failed; repeat it with `{SEED}={seed} {repeat}`");
                        next.fetch_max(seeds.end, Ordering::Relaxed);
                        *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(panic);
                    }
                }
            });
        }
    });
    if let Some(panic) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        resume_unwind(panic);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn wander(world: World) {
        for _ in 0..20 {
            tokio::time::sleep(world.millis(0..1000)).await;
            world.note(world.number(0..1_000_000));
        }
    }

    #[test]
    fn a_seed_decides_a_run() {
        assert_eq!(run(7, wander), run(7, wander));
        assert_ne!(run(7, wander), run(8, wander));
    }

    #[test]
    fn a_failing_seed_is_not_passed_over() {
        let failed = catch_unwind(|| simulate(100, "cargo test", async |world: World| assert_ne!(world.seed(), 77)));
        assert!(failed.is_err());
    }
}

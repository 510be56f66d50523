//! Contenders that take turns: in each round all of them, so that a busy minute of the machine strikes all.

use distlock_testkit::Server;

use crate::Result;
use crate::bench::{Bench, micros_of};
use crate::contenders::{AsyncRedisLock, Bare, BareNoDelay, BareScript, Contender, Distlock, Rlock, Rslock};
use crate::figures::Sample;
use crate::place::cpu_time;

/// What was seen of one contender.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) name: &'static str,
    /// One figure of each round.
    pub(crate) rounds: Vec<f64>,
    /// Of each cycle, where cycles are timed.
    pub(crate) cycles: Vec<f64>,
    /// CPU time of this process and of the server, in microseconds, and for how many cycles.
    client: f64,
    server: f64,
    count: f64,
}

impl Series {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, rounds: Vec::new(), cycles: Vec::new(), client: 0.0, server: 0.0, count: 0.0 }
    }

    pub(crate) fn sample(&self) -> Sample {
        Sample::new(self.rounds.iter().copied())
    }

    /// Round by round against the same round of `floor`.
    pub(crate) fn ratios(&self, floor: &Self) -> Sample {
        Sample::new(self.rounds.iter().zip(&floor.rounds).map(|(own, floor)| own / floor))
    }

    /// What a cycle costs, whoever else uses the machine.
    pub(crate) fn cpu(&self) -> String {
        let count = self.count.max(1.0);
        format!("CPU client {:.1} us, server {:.1} us", self.client / count, self.server / count)
    }

    /// Takes the CPU time that `round` uses for `count` cycles.
    pub(crate) async fn watch<T>(
        &mut self,
        server: &Server,
        count: u64,
        round: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let pids = [std::process::id(), server.pid().unwrap_or_default()];
        let before = [cpu_time(pids[0])?, cpu_time(pids[1])?];
        let outcome = round.await?;
        self.client += micros_of(cpu_time(pids[0])?.saturating_sub(before[0]));
        self.server += micros_of(cpu_time(pids[1])?.saturating_sub(before[1]));
        self.count += count as f64;
        Ok(outcome)
    }
}

/// Rounds of one line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rounds {
    pub(crate) count: usize,
    pub(crate) cycles: u64,
}

impl Rounds {
    pub(crate) fn pick(bench: &Bench, whole: (usize, u64), quick: (usize, u64)) -> Self {
        let (count, cycles) = bench.pick(whole, quick);
        Self { count, cycles }
    }
}

/// What each contender does in its turn.
pub(crate) trait Round {
    /// Does it `count` times, and notes what it took.
    async fn run<C: Contender>(&self, contender: &C, series: &mut Series, count: u64) -> Result<()>;
}

/// Lets all contenders take turns, the floors first and this library behind them. The first round warms up and does not count.
pub(crate) async fn take_turns(url: &str, rounds: Rounds, round: &impl Round) -> Result<Vec<Series>> {
    let bare = Bare::connect(url).await?;
    let bare_no_delay = BareNoDelay::connect(url).await?;
    let bare_script = BareScript::connect(url).await?;
    let ours = Distlock::connect(url).await?;
    let rslock = Rslock::connect(url).await?;
    let rlock = Rlock::connect(url).await?;
    let async_redis_lock = AsyncRedisLock::connect(url).await?;
    let fresh = || {
        [
            Bare::NAME,
            BareNoDelay::NAME,
            BareScript::NAME,
            Distlock::NAME,
            Rslock::NAME,
            Rlock::NAME,
            AsyncRedisLock::NAME,
        ]
        .map(Series::new)
    };
    let (mut warm_up, mut all) = (fresh(), fresh());
    for turn in 0..=rounds.count {
        let [first, second, third, fourth, fifth, sixth, seventh] = if turn == 0 { &mut warm_up } else { &mut all };
        round.run(&bare, first, rounds.cycles).await?;
        round.run(&bare_no_delay, second, rounds.cycles).await?;
        round.run(&bare_script, third, rounds.cycles).await?;
        round.run(&ours, fourth, rounds.cycles).await?;
        round.run(&rslock, fifth, rounds.cycles).await?;
        round.run(&rlock, sixth, rounds.cycles).await?;
        round.run(&async_redis_lock, seventh, rounds.cycles).await?;
    }
    Ok(all.into())
}

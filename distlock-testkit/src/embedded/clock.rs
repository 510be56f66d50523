//! The clock of an embedded server: what `TIME` says and what expiry goes by. Tests bend it.
//!
//! It runs on tokio's clock, so that paused time works, and is the server's own: bending it moves no timer of a client.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// Where time starts under a paused clock, so that two runs are alike: 2025-01-01T00:00:00Z.
const PAUSED_START: Duration = Duration::from_secs(1_735_689_600);

const MILLION: i128 = 1_000_000;

/// The clock of one server. A clone is the same clock.
#[derive(Clone)]
pub struct ServerClock {
    state: Arc<Mutex<State>>,
}

struct State {
    /// When the clock was last bent, and what it showed then, in nanoseconds since the Unix epoch.
    bent: Instant,
    showed: i128,
    /// How much faster it runs than time passes.
    ppm: i64,
}

impl ServerClock {
    /// The system's time, or a fixed start under a paused clock.
    pub(crate) fn start() -> Self {
        let since_epoch = if is_paused() {
            PAUSED_START
        } else {
            SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(PAUSED_START)
        };
        let state = State { bent: Instant::now(), showed: nanos(since_epoch), ppm: 0 };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// What the clock shows, since the Unix epoch.
    #[must_use]
    pub fn now(&self) -> Duration {
        let shown = self.lock().shown();
        Duration::from_nanos(u64::try_from(shown).unwrap_or(if shown < 0 { 0 } else { u64::MAX }))
    }

    /// Makes it run faster by this many parts in a million, or slower when negative; 10,000 is 1 %. What it shows now
    /// does not change.
    pub fn set_rate(&self, ppm: i64) {
        let mut state = self.lock();
        state.rebase();
        state.ppm = ppm.max(-1_000_000); // it may stand still, not run backwards
    }

    /// Sets it forward at once.
    pub fn step_forward(&self, by: Duration) {
        let mut state = self.lock();
        state.rebase();
        state.showed += nanos(by);
    }

    /// Sets it back at once, at most to the Unix epoch.
    pub fn step_back(&self, by: Duration) {
        let mut state = self.lock();
        state.rebase();
        state.showed = (state.showed - nanos(by)).max(0);
    }

    /// Microseconds since the Unix epoch.
    pub(crate) fn micros(&self) -> i64 {
        i64::try_from(self.now().as_micros()).unwrap_or(i64::MAX)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for ServerClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerClock").field("now", &self.now()).field("ppm", &self.lock().ppm).finish()
    }
}

impl State {
    fn shown(&self) -> i128 {
        let passed = nanos(self.bent.elapsed());
        self.showed + passed * (MILLION + i128::from(self.ppm)) / MILLION
    }

    fn rebase(&mut self) {
        let now = Instant::now();
        let passed = nanos(now - self.bent);
        self.showed += passed * (MILLION + i128::from(self.ppm)) / MILLION;
        self.bent = now;
    }
}

fn nanos(duration: Duration) -> i128 {
    i128::try_from(duration.as_nanos()).unwrap_or(i128::MAX)
}

/// True when tokio's clock stands still while the machine's goes on. There is no way to ask.
fn is_paused() -> bool {
    let (before, begun) = (Instant::now(), std::time::Instant::now());
    while begun.elapsed().is_zero() {}
    Instant::now() == before
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn under_a_paused_clock_it_starts_where_it_always_starts() {
        let clock = ServerClock::start();
        assert_eq!(clock.now(), PAUSED_START);
        advance(SECOND).await;
        assert_eq!(clock.now(), PAUSED_START + SECOND);
    }

    #[tokio::test]
    async fn else_it_shows_the_system_s_time() {
        let system = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let shown = ServerClock::start().now();
        assert!(shown.abs_diff(system) < 5 * SECOND, "{shown:?}, {system:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_of_the_rate_is_no_step() {
        let clock = ServerClock::start();
        advance(1000 * SECOND).await;
        clock.set_rate(10_000);
        assert_eq!(clock.now(), PAUSED_START + 1000 * SECOND);
        advance(100 * SECOND).await;
        assert_eq!(clock.now(), PAUSED_START + 1101 * SECOND);
        clock.set_rate(-1_000_000);
        advance(100 * SECOND).await;
        assert_eq!(clock.now(), PAUSED_START + 1101 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn it_steps_both_ways() {
        let clock = ServerClock::start();
        clock.step_forward(10 * SECOND);
        assert_eq!(clock.now(), PAUSED_START + 10 * SECOND);
        clock.step_back(15 * SECOND);
        assert_eq!(clock.now(), PAUSED_START - 5 * SECOND);
        clock.step_back(Duration::MAX);
        assert_eq!(clock.now(), Duration::ZERO);
    }
}

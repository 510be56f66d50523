//! The clock seam: moments on a monotonic clock, and sleeping until one of them.
//!
//! Leases against a real server are measured on a clock that goes on counting while the machine sleeps
//! (`CLOCK_BOOTTIME`): a laptop or a virtual machine that wakes up must see that its lease is over. The in-memory store
//! uses tokio's clock instead, so that tests under paused time are exact. Nothing here reads the wall clock, and all
//! arithmetic saturates.

use std::time::Duration;

use crate::error::{Config, LockError};

/// A point on one manager's clock, in nanoseconds. Moments of different clocks must not be mixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(u64);

impl Moment {
    /// Before every other moment.
    pub(crate) const PAST: Self = Self(0);
    /// After every other moment.
    pub(crate) const NEVER: Self = Self(u64::MAX);

    pub(crate) fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }

    /// How far this moment lies behind `earlier`; zero if it lies before it.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    pub(crate) fn to_nanos(self) -> u64 {
        self.0
    }

    pub(crate) fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Where a manager's time comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Clock {
    /// The system's monotonic clock, counting suspend where the system has such a clock.
    System,
    /// Tokio's clock, which tests can pause and advance; counted from the manager's birth.
    Tokio(tokio::time::Instant),
}

impl Clock {
    pub(crate) fn tokio() -> Self {
        Self::Tokio(tokio::time::Instant::now())
    }

    pub(crate) fn now(&self) -> Moment {
        match self {
            Self::System => system_now(),
            // One nanosecond is added so that no real moment equals `PAST`.
            Self::Tokio(origin) => Moment(nanos(origin.elapsed()).saturating_add(1)),
        }
    }

    /// Completes at `at` or a little later. Tokio's timers do not count suspend, so on the system's clock it looks again
    /// every [`LOOK_AGAIN`]: that late at most is a machine that wakes up told what it has slept through.
    pub(crate) async fn sleep_until(&self, at: Moment) {
        if at == Moment::NEVER {
            return std::future::pending().await;
        }
        loop {
            let left = at.since(self.now());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(match self {
                Self::System => left.min(LOOK_AGAIN),
                Self::Tokio(_) => left,
            })
            .await;
        }
    }
}

/// The longest that a sleep on the system's clock goes without looking at it.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

#[cfg(target_os = "linux")]
fn system_now() -> Moment {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let secs = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
    Moment(secs.saturating_mul(1_000_000_000).saturating_add(nanos))
}

/// Elsewhere the standard library's clock is the nearest there is; it may stand still during suspend.
#[cfg(not(target_os = "linux"))]
fn system_now() -> Moment {
    use std::sync::OnceLock;
    use std::time::Instant;
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    Moment(nanos(ORIGIN.get_or_init(Instant::now).elapsed()).saturating_add(1))
}

/// Refuses to go on where there are no timers: outside of a tokio runtime.
pub(crate) fn needs_runtime() -> Result<(), LockError> {
    match tokio::runtime::Handle::try_current() {
        Ok(_) => Ok(()),
        Err(_) => Err(Config::new("distlock needs a tokio runtime; await the call inside one").into()),
    }
}

/// Whether the current runtime's tokio clock stands still, as under `start_paused`. A real server cannot be used under
/// such a clock: time-outs fire at once.
pub(crate) fn tokio_clock_is_paused() -> bool {
    // Long enough to be told apart on any clock, short enough not to be noticed at connect.
    const LOOK: Duration = Duration::from_micros(50);
    let (tokio_before, std_before) = (tokio::time::Instant::now(), std::time::Instant::now());
    while std_before.elapsed() < LOOK {
        std::hint::spin_loop();
    }
    tokio_before.elapsed().is_zero()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        let now = Clock::System.now();
        assert_eq!(now.after(Duration::MAX), Moment::NEVER);
        assert_eq!(Moment::PAST.since(now), Duration::ZERO);
        assert!(now > Moment::PAST);
    }

    #[tokio::test(start_paused = true)]
    async fn a_paused_clock_is_noticed_and_followed() {
        assert!(tokio_clock_is_paused());
        let clock = Clock::tokio();
        let start = clock.now();
        clock.sleep_until(start.after(Duration::from_secs(3600))).await;
        assert_eq!(clock.now().since(start).as_secs(), 3600);
    }

    #[tokio::test]
    async fn a_running_clock_is_not_taken_for_a_paused_one() {
        assert!(!tokio_clock_is_paused());
    }
}

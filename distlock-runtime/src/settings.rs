//! What a caller may set for one lock, and the plan that comes out once the manager's defaults are filled in and every
//! value was checked. A wrong value ends here, before anything is sent.

use std::num::NonZero;
use std::time::Duration;

use crate::error::{Config, LockError};

/// The shortest ttl: below it, one lost packet is a lost lease.
pub(crate) const MIN_TTL: Duration = Duration::from_millis(10);

/// The ttl of a lock that names none, on a manager that names none.
pub(crate) const DEFAULT_TTL: Duration = Duration::from_secs(30);

/// The longest ttl, `min_hold` or `extend` of a manager that names no other.
pub(crate) const DEFAULT_MAX_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// The least pause between two renewals: shorter ones would only load the server.
pub(crate) const MIN_RENEW: Duration = Duration::from_millis(3);

/// How long a call may try to get its lock, everything included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// This long; zero is one try.
    For(Duration),
    /// Until it has it.
    Forever,
}

impl From<Duration> for Wait {
    /// [`Duration::MAX`] is forever.
    fn from(wait: Duration) -> Self {
        if wait == Duration::MAX { Self::Forever } else { Self::For(wait) }
    }
}

/// How a lease is prolonged while its body runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Renew {
    /// Every third of the ttl.
    #[default]
    Auto,
    /// Not at all: the lease ends after one ttl.
    Off,
    /// This often; at most half of the ttl.
    Every(Duration),
}

impl From<Duration> for Renew {
    fn from(interval: Duration) -> Self {
        Self::Every(interval)
    }
}

/// What one lock declares. `None` leaves it to the manager.
#[derive(Clone, Copy, Debug, Default)]
#[doc(hidden)]
pub struct Settings {
    /// How long the key outlives a crashed holder.
    pub ttl: Option<Duration>,
    /// How long to try.
    pub wait: Option<Wait>,
    /// How to prolong.
    pub renew: Option<Renew>,
    /// The longest a lease may be held.
    pub max_hold: Option<Duration>,
    /// The shortest time the key stays taken.
    pub min_hold: Option<Duration>,
    /// How long the key stays taken after the body gave `Ok`.
    pub after_ok: Option<Duration>,
    /// How long it stays taken after the body gave `Err`.
    pub after_err: Option<Duration>,
    /// Whether the task may enter a lock that it already holds.
    pub reentrant: Option<bool>,
    /// What the parts of a lock on several keys declare in different ways.
    pub disputed: Disputed,
}

/// Settings that several declarations, taken together, give different values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(hidden)]
pub struct Disputed(u8);

/// The settings in the order of their bits in [`Disputed`].
const NAMES: [&str; 6] = ["ttl", "wait", "renew", "max_hold", "min_hold", "reentrant"];

/// What a manager fills in and bounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Defaults {
    pub(crate) ttl: Duration,
    pub(crate) wait: Wait,
    pub(crate) max_ttl: Duration,
    /// Share of the ttl given up for clocks that run at different rates.
    pub(crate) drift: f64,
    /// How much longer than the lease the server keeps the key.
    pub(crate) grace: Duration,
}

/// Checked settings of one locked call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) ttl: Duration,
    /// `None` waits forever.
    pub(crate) wait: Option<Duration>,
    /// `None` never renews.
    pub(crate) renew_every: Option<Span>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) min_hold: Option<Duration>,
    pub(crate) after_ok: Option<Span>,
    pub(crate) after_err: Option<Span>,
    pub(crate) reentrant: bool,
}

/// A duration that is not zero, in half the space: a plan is part of every locked future.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span(NonZero<u64>);

impl Span {
    pub(crate) fn get(self) -> Duration {
        Duration::from_nanos(self.0.get())
    }
}

/// Ends at the longest one, after five hundred years.
impl From<Duration> for Span {
    fn from(duration: Duration) -> Self {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(NonZero::new(nanos).unwrap_or(NonZero::<u64>::MIN))
    }
}

/// What the macros write, one call for each option.
macro_rules! with {
    ($($name:ident: $ty:ty),*) => {
        impl Settings {$(
            /// The same with this value.
            #[must_use]
            pub const fn $name(mut self, value: $ty) -> Self {
                self.$name = Some(value);
                self
            }
        )*}
    };
}

with! {
    ttl: Duration, wait: Wait, renew: Renew, max_hold: Duration, min_hold: Duration, after_ok: Duration, after_err: Duration,
    reentrant: bool
}

impl Settings {
    /// Leaves every setting to whoever comes next.
    pub const INHERIT: Self = Self {
        ttl: None,
        wait: None,
        renew: None,
        max_hold: None,
        min_hold: None,
        after_ok: None,
        after_err: None,
        reentrant: None,
        disputed: Disputed(0),
    };

    /// These settings, and from `lower` what they leave open. So each step of the precedence is one call.
    #[must_use]
    pub const fn or(self, lower: Self) -> Self {
        Self {
            ttl: first(self.ttl, lower.ttl),
            wait: first(self.wait, lower.wait),
            renew: first(self.renew, lower.renew),
            max_hold: first(self.max_hold, lower.max_hold),
            min_hold: first(self.min_hold, lower.min_hold),
            after_ok: first(self.after_ok, lower.after_ok),
            after_err: first(self.after_err, lower.after_err),
            reentrant: first(self.reentrant, lower.reentrant),
            disputed: Disputed(self.disputed.0 | (lower.disputed.0 & !self.named())),
        }
    }

    /// The settings of a lock on the keys of two declarations. What they declare in different ways is in dispute until
    /// a higher step of the precedence names it.
    #[must_use]
    pub const fn beside(self, other: Self) -> Self {
        let differ = bits([
            differ_in_time(self.ttl, other.ttl),
            matches!((self.wait, other.wait), (Some(a), Some(b)) if !same_wait(a, b)),
            matches!((self.renew, other.renew), (Some(a), Some(b)) if !same_renew(a, b)),
            differ_in_time(self.max_hold, other.max_hold),
            differ_in_time(self.min_hold, other.min_hold),
            matches!((self.reentrant, other.reentrant), (Some(a), Some(b)) if a != b),
        ]);
        let disputed = Disputed(self.disputed.0 | other.disputed.0 | differ);
        Self { disputed, ..self.or(other) }
    }

    /// A bit for each setting that has a value.
    const fn named(&self) -> u8 {
        bits([
            self.ttl.is_some(),
            self.wait.is_some(),
            self.renew.is_some(),
            self.max_hold.is_some(),
            self.min_hold.is_some(),
            self.reentrant.is_some(),
        ])
    }

    /// Refuses what is still in dispute.
    fn agreed(&self) -> Result<(), LockError> {
        match (0..NAMES.len()).find(|bit| self.disputed.0 & (1 << bit) != 0) {
            None => Ok(()),
            Some(bit) => Err(bad(format!(
                "the declarations of this lock have different values of `{name}`; name `{name}` where they are locked together, or declare it alike",
                name = NAMES[bit]
            ))),
        }
    }

    pub(crate) fn plan(&self, defaults: &Defaults) -> Result<Plan, LockError> {
        self.agreed()?;
        let ttl = self.ttl.unwrap_or(defaults.ttl);
        check_ttl("ttl", ttl, defaults.max_ttl)?;
        let renew_every = match self.renew.unwrap_or_default() {
            Renew::Off => None,
            Renew::Auto => Some((ttl / 3).max(MIN_RENEW)),
            Renew::Every(interval) => Some(check_interval(interval, ttl)?),
        };
        if renew_every.is_none() && self.max_hold.is_some() {
            return Err(bad(
                "`max_hold` limits how long a lease is renewed, but `renew` is off; leave one of them out".to_owned(),
            ));
        }
        if let Some(max_hold) = self.max_hold
            && max_hold < ttl
        {
            return Err(bad(format!(
                "`max_hold` ({max_hold:?}) is shorter than `ttl` ({ttl:?}); make it at least as long, or shorten `ttl`"
            )));
        }
        if let Some(min_hold) = self.min_hold {
            if min_hold > defaults.max_ttl {
                return Err(too_long("min_hold", min_hold, defaults.max_ttl));
            }
            if self.max_hold.is_some_and(|max_hold| min_hold > max_hold) {
                return Err(bad(format!(
                    "`min_hold` ({min_hold:?}) is longer than `max_hold`; shorten it, or make `max_hold` longer"
                )));
            }
        }
        for (name, keep) in [("after_ok", self.after_ok), ("after_err", self.after_err)] {
            match keep {
                Some(keep) if keep > defaults.max_ttl => return Err(too_long(name, keep, defaults.max_ttl)),
                Some(Duration::ZERO) => {
                    return Err(bad(format!(
                        "`{name}` keeps the key for no time; write `release`, or give it a duration"
                    )));
                }
                _ => {}
            }
        }
        Ok(Plan {
            ttl,
            wait: match self.wait.unwrap_or(defaults.wait) {
                Wait::Forever => None,
                Wait::For(wait) if wait == Duration::MAX => None,
                Wait::For(wait) => Some(wait),
            },
            renew_every: renew_every.map(Span::from),
            max_hold: self.max_hold,
            min_hold: self.min_hold,
            after_ok: self.after_ok.map(Span::from),
            after_err: self.after_err.map(Span::from),
            reentrant: self.reentrant.unwrap_or(false),
        })
    }
}

const fn first<T: Copy>(higher: Option<T>, lower: Option<T>) -> Option<T> {
    match higher {
        None => lower,
        given => given,
    }
}

const fn bits(set: [bool; NAMES.len()]) -> u8 {
    let mut bits = 0;
    let mut at = 0;
    while at < set.len() {
        bits |= (set[at] as u8) << at;
        at += 1;
    }
    bits
}

// Durations and enums cannot be compared with `==` while the crate is built.
const fn differ_in_time(a: Option<Duration>, b: Option<Duration>) -> bool {
    matches!((a, b), (Some(a), Some(b)) if a.as_nanos() != b.as_nanos())
}

const fn same_wait(a: Wait, b: Wait) -> bool {
    match (a, b) {
        (Wait::For(a), Wait::For(b)) => a.as_nanos() == b.as_nanos(),
        (Wait::Forever, Wait::Forever) => true,
        _ => false,
    }
}

const fn same_renew(a: Renew, b: Renew) -> bool {
    match (a, b) {
        (Renew::Every(a), Renew::Every(b)) => a.as_nanos() == b.as_nanos(),
        (Renew::Auto, Renew::Auto) | (Renew::Off, Renew::Off) => true,
        _ => false,
    }
}

/// Refuses a ttl that no lease can live on. Also the check of [`Lease::extend`](crate::Lease::extend).
pub(crate) fn check_ttl(name: &str, ttl: Duration, max_ttl: Duration) -> Result<(), LockError> {
    if ttl < MIN_TTL {
        return Err(bad(format!("`{name}` of {ttl:?} is too short; give it at least {MIN_TTL:?}")));
    }
    if ttl > max_ttl {
        return Err(too_long(name, ttl, max_ttl));
    }
    Ok(())
}

fn check_interval(interval: Duration, ttl: Duration) -> Result<Duration, LockError> {
    if interval > ttl / 2 {
        return Err(bad(format!(
            "`renew` of {interval:?} is longer than half of `ttl` ({ttl:?}), so one lost renewal would lose the lease; leave it at `auto`, or renew more often"
        )));
    }
    if interval < MIN_RENEW {
        return Err(bad(format!(
            "`renew` of {interval:?} is too short; give it at least {MIN_RENEW:?}, or leave it at `auto`"
        )));
    }
    Ok(interval)
}

fn too_long(name: &str, value: Duration, max_ttl: Duration) -> LockError {
    bad(format!(
        "`{name}` of {value:?} is longer than the manager's `max_ttl` ({max_ttl:?}); shorten it, or build the manager with a longer `max_ttl`"
    ))
}

fn bad(problem: String) -> LockError {
    Config::new(problem).into()
}

impl Defaults {
    /// How much of a ttl the holder may rely on, counted from the send of the command that set it:
    /// `ttl − (ttl × drift + 2 ms)`. The 2 ms cover the granularity of expiry on the server.
    pub(crate) fn validity(&self, ttl: Duration) -> Duration {
        const EXPIRY_GRANULARITY: Duration = Duration::from_millis(2);
        ttl.saturating_sub(ttl.mul_f64(self.drift)).saturating_sub(EXPIRY_GRANULARITY)
    }

    /// The expiry to ask the server for.
    pub(crate) fn expiry(&self, ttl: Duration) -> Duration {
        ttl.saturating_add(self.grace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULTS: Defaults = Defaults {
        ttl: DEFAULT_TTL,
        wait: Wait::For(Duration::ZERO),
        max_ttl: DEFAULT_MAX_TTL,
        drift: 0.01,
        grace: Duration::ZERO,
    };

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn refused(settings: Settings) -> String {
        match settings.plan(&DEFAULTS) {
            Err(LockError::Config(config)) => config.to_string(),
            other => panic!("not refused: {other:?}"),
        }
    }

    #[test]
    fn values_that_cannot_lock_are_refused_with_the_way_out() {
        let ttl = |ttl| Settings { ttl: Some(ttl), ..Settings::default() };
        assert!(refused(ttl(Duration::ZERO)).contains("at least 10ms"));
        assert!(refused(ttl(ms(9))).contains("at least 10ms"));
        assert!(refused(ttl(Duration::MAX)).contains("max_ttl"));
        assert!(refused(ttl(DEFAULT_MAX_TTL + ms(1))).contains("max_ttl"));
        assert!(refused(Settings { renew: Some(Renew::Every(ms(101))), ..ttl(ms(200)) }).contains("half"));
        assert!(refused(Settings { renew: Some(Renew::Every(ms(500))), ..ttl(ms(200)) }).contains("half"));
        assert!(refused(Settings { renew: Some(Renew::Every(Duration::ZERO)), ..ttl(ms(200)) }).contains("too short"));
        assert!(refused(Settings { max_hold: Some(ms(199)), ..ttl(ms(200)) }).contains("max_hold"));
        assert!(
            refused(Settings { min_hold: Some(ms(300)), max_hold: Some(ms(250)), ..ttl(ms(200)) }).contains("min_hold")
        );
        assert!(refused(Settings { min_hold: Some(Duration::MAX), ..ttl(ms(200)) }).contains("max_ttl"));
        for keep in [DEFAULT_MAX_TTL + ms(1), Duration::MAX] {
            assert!(refused(Settings { after_ok: Some(keep), ..ttl(ms(200)) }).contains("`after_ok`"));
            assert!(refused(Settings { after_err: Some(keep), ..ttl(ms(200)) }).contains("`after_err`"));
        }
        assert!(refused(Settings { after_ok: Some(Duration::ZERO), ..ttl(ms(200)) }).contains("write `release`"));
    }

    #[test]
    fn the_bounds_themselves_are_accepted() {
        let plan = Settings { ttl: Some(MIN_TTL), ..Settings::default() }.plan(&DEFAULTS).unwrap();
        assert_eq!(plan.renew_every.map(Span::get), Some(MIN_TTL / 3));
        let settings = Settings {
            ttl: Some(DEFAULT_MAX_TTL),
            renew: Some(Renew::Every(DEFAULT_MAX_TTL / 2)),
            ..Settings::default()
        };
        assert!(settings.plan(&DEFAULTS).is_ok());
    }

    #[test]
    fn the_higher_step_of_the_precedence_wins() {
        let lower = Settings { ttl: Some(ms(100)), wait: Some(Wait::Forever), ..Settings::INHERIT };
        let both = Settings { ttl: Some(ms(50)), ..Settings::INHERIT }.or(lower);
        assert_eq!((both.ttl, both.wait, both.renew), (Some(ms(50)), Some(Wait::Forever), None));
    }

    #[test]
    fn declarations_that_disagree_are_refused_until_somebody_decides() {
        let one = |ttl| Settings { ttl: Some(ms(ttl)), ..Settings::INHERIT };
        assert!(one(50).beside(one(50)).beside(Settings::INHERIT).plan(&DEFAULTS).is_ok());
        let disputed = Settings::INHERIT.beside(one(50)).beside(one(60)).beside(one(50));
        assert!(refused(disputed).contains("different values of `ttl`"));
        assert!(refused(Settings::INHERIT.or(disputed)).contains("different values of `ttl`"));
        assert_eq!(one(70).or(disputed).plan(&DEFAULTS).unwrap().ttl, ms(70));
        let other = Settings { wait: Some(Wait::Forever), ..one(70) };
        assert!(other.or(disputed).plan(&DEFAULTS).is_ok());
        let wait = |wait| Settings { wait: Some(wait), ..Settings::INHERIT };
        assert!(refused(wait(Wait::Forever).beside(wait(Wait::For(ms(1))))).contains("`wait`"));
        let renew = |renew| Settings { renew: Some(renew), ..Settings::INHERIT };
        assert!(refused(renew(Renew::Every(ms(4))).beside(renew(Renew::Every(ms(5))))).contains("`renew`"));
    }

    #[test]
    fn the_longest_duration_is_forever() {
        let wait = |wait| Settings { wait, ..Settings::default() }.plan(&DEFAULTS).unwrap().wait;
        assert_eq!(wait(Some(Wait::For(Duration::MAX))), None);
        assert_eq!(wait(Some(Wait::Forever)), None);
        assert_eq!(wait(None), Some(Duration::ZERO));
    }

    #[test]
    fn validity_never_underflows() {
        assert_eq!(DEFAULTS.validity(ms(1000)), ms(988));
        assert_eq!(DEFAULTS.validity(ms(1)), Duration::ZERO);
        assert_eq!(Defaults { drift: 0.5, ..DEFAULTS }.validity(ms(1000)), ms(498));
    }
}

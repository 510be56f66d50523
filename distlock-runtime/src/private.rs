//! Everything that the expansion of the macro names, and nothing else. Not for use by hand: it changes with the macro.

pub use core;
use std::marker::PhantomData;

pub use inventory;

pub use crate::__distlock_register as register;
use crate::current::AsLockManager;
pub use crate::current::current;
pub use crate::declarations::{Argument, Identity, LockKey, LockSet, OneKey, Several, in_set, same_crate};
pub use crate::error::LockError;
use crate::error::{Busy, Lost};
use crate::events;
pub use crate::items::{Items, ItemsBehind, ItemsOf, Iterable, NoItems};
pub use crate::key::Keys;
pub use crate::locked::{Call, Ending, Locked, Opened, Verdict};
use crate::manager::LockManager;
pub use crate::outcome::{
    CanFail, CarriesBusy, CarriesBusyError, CarriesBusyErrorLost, CarriesBusyLost, CarriesError, CarriesErrorLost,
    CarriesLost, FromLockError, MapsError, SkipBusy, SkipError,
};
pub use crate::registry::{Entry, Piece, Registered, Template};
pub use crate::segment::{IntegerFormat, KeyBuilder, KeyInteger, KeySegment, Radix, Sealed};
use crate::settings::{DEFAULT_MAX_TTL, MIN_RENEW, MIN_TTL};
pub use crate::settings::{Renew, Settings, Wait};
pub use crate::whole::{KeysOf, Whole, WholeDeclaration, WholeKey, WholeNeither, WholeText};
pub use core::time::Duration;
pub use std::vec::Vec;

/// Leaves every setting to the manager.
pub const INHERIT: Settings = Settings::INHERIT;

/// A literal duration, which the macro has read and checked.
pub const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

// ----- constants of the user, checked at build -----

/// A constant as `ttl`.
#[track_caller]
pub const fn checked_ttl(ttl: Duration) -> Duration {
    assert!(ttl.as_nanos() >= MIN_TTL.as_nanos(), "`ttl` must be at least 10ms");
    assert!(ttl.as_nanos() <= DEFAULT_MAX_TTL.as_nanos(), "`ttl` must be at most 24h");
    ttl
}

/// A constant as `min_hold`.
#[track_caller]
pub const fn checked_min_hold(min_hold: Duration) -> Duration {
    assert!(min_hold.as_nanos() <= DEFAULT_MAX_TTL.as_nanos(), "`min_hold` must be at most 24h");
    min_hold
}

/// A constant as `after_ok` or `after_err`.
#[track_caller]
pub const fn checked_keep(keep: Duration) -> Duration {
    assert!(!keep.is_zero(), "`keep` must be longer than zero; write `release` to give the key back at once");
    assert!(keep.as_nanos() <= DEFAULT_MAX_TTL.as_nanos(), "`keep` must be at most 24h");
    keep
}

/// A constant as `renew`.
#[track_caller]
pub const fn checked_renew(interval: Duration) -> Duration {
    assert!(
        interval.as_nanos() >= MIN_RENEW.as_nanos(),
        "`renew` must be at least 3ms; write `renew = off` if you want no renewal"
    );
    interval
}

/// A duration of which every value is meaningful by itself, or of which the manager will judge.
pub const fn duration(duration: Duration) -> Duration {
    duration
}

// ----- before the call -----

/// The manager that `manager = EXPR` names.
pub fn manager<M: AsLockManager + ?Sized>(manager: &M) -> Result<LockManager, LockError> {
    Ok(manager.as_lock_manager().clone())
}

/// A locked call of an annotated function.
pub fn call(
    entry: &'static Entry,
    settings: Settings,
    manager: Result<LockManager, LockError>,
    key: Result<Keys, LockError>,
) -> Call {
    Call::new(manager, key, settings, entry.declared.spec.function)
}

/// The same on the manager of `scope` or of `init`, with the settings that are known at build.
pub fn call_as_declared(entry: &'static Entry, key: Result<Keys, LockError>) -> Call {
    call(entry, entry.declared.settings, current(), key)
}

/// A function without options about its manager, its lease or its failures: all of it is one call.
pub fn locked<R, F: Future<Output = R>>(
    entry: &'static Entry,
    key: Result<Keys, LockError>,
    fail: fn(LockError) -> R,
    body: F,
) -> Locked<F, Policies<R>> {
    Locked::new(call_as_declared(entry, key), Policies::failing(entry, fail), body)
}

/// The value of a `return` that is never reached.
pub fn never_returned<T>() -> T {
    unreachable!("a locked function went where only its type is told")
}

// ----- typed locks -----

/// A typed lock with its fields filled in: its keys, its settings, its witness.
pub fn typed<K: LockKey>(lock: K) -> KeysOf<K::Witness> {
    (lock.keys(), K::SETTINGS, PhantomData)
}

/// Fails the build of a declaration that names a lock set of another crate. Both paths begin with their crate.
#[track_caller]
pub const fn own_set(set: &str, declaration: &str) {
    assert!(
        same_crate(set, declaration),
        "this lock set belongs to another crate; make one here with `distlock::lock_set!`"
    );
}

// ----- how the call ends -----

/// What the options say about the end of a call.
#[derive(Debug)]
pub struct Policies<R> {
    /// Whose call it is.
    pub entry: &'static Entry,
    /// `on_busy`.
    pub busy: OnRefusal<R, fn(Busy) -> R>,
    /// `on_error`.
    pub error: OnRefusal<R, fn() -> R>,
    /// `on_lost`.
    pub lost: OnLost<R>,
    /// Whether the body gave `Ok`, if `after_ok` or `after_err` asks.
    pub is_ok: Option<fn(&R) -> bool>,
}

/// `on_busy` or `on_error`; `S` makes the value of a call that is left out.
#[derive(Debug)]
pub enum OnRefusal<R, S> {
    /// Give the error.
    Fail(fn(LockError) -> R),
    /// Leave the call out, which is worth an event.
    Skip(S),
    /// A closure inside the body's future makes the value.
    Closure,
}

/// `on_lost`.
#[derive(Debug)]
pub enum OnLost<R> {
    /// Drop the body and give the error.
    Fail(fn(LockError) -> R),
    /// Drop the body and give this.
    Value(fn(Lost) -> R),
    /// Let it run to its end.
    Finish,
}

impl<R> Policies<R> {
    /// What holds without options: every failure is an error.
    pub fn failing(entry: &'static Entry, fail: fn(LockError) -> R) -> Self {
        let (busy, error) = (OnRefusal::Fail(fail), OnRefusal::Fail(fail));
        Self { entry, busy, error, lost: OnLost::Fail(fail), is_ok: None }
    }
}

impl<R> Verdict<R> for Policies<R> {
    type Output = R;

    fn ending(&self, output: &R) -> Ending {
        match self.is_ok {
            None => Ending::Either,
            Some(is_ok) if is_ok(output) => Ending::Ok,
            Some(_) => Ending::Err,
        }
    }

    fn finished(&self, output: R) -> R {
        output
    }

    fn refused(&self, err: LockError) -> Result<R, LockError> {
        let function = self.entry.declared.spec.function;
        match err {
            LockError::Busy(busy) => match &self.busy {
                OnRefusal::Fail(fail) => Ok(fail(busy.into())),
                OnRefusal::Skip(skip) => {
                    events::skipped(function, &busy.clone().into());
                    Ok(skip(busy))
                }
                OnRefusal::Closure => Err(busy.into()),
            },
            err => match &self.error {
                OnRefusal::Fail(fail) => Ok(fail(err)),
                OnRefusal::Skip(skip) => {
                    events::skipped(function, &err);
                    Ok(skip())
                }
                OnRefusal::Closure => Err(err),
            },
        }
    }

    fn cancels_on_loss(&self) -> bool {
        !matches!(self.lost, OnLost::Finish)
    }

    fn lost(&self, err: LockError) -> R {
        match (&self.lost, err) {
            (OnLost::Fail(fail), err) => fail(err),
            (OnLost::Value(value), LockError::Lost(lost)) => value(lost),
            (OnLost::Value(_) | OnLost::Finish, _) => {
                unreachable!("a call that was not cancelled by a loss was asked for the value of one")
            }
        }
    }
}

/// What a body does that is polled without a lease although no closure wants it. It must not go on.
#[cold]
pub fn polled_without_lease(refusal: &dyn std::fmt::Debug) -> ! {
    unreachable!("the body of a locked function was polled without its lock: {refusal:?}")
}

// ----- names in a template that are no argument -----

/// Stands for an argument where only the names of a template are looked up.
#[derive(Debug)]
pub struct Shown;

macro_rules! shown {
    ($($form:ident)*) => {$(
        impl std::fmt::$form for Shown {
            fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                Ok(())
            }
        }
    )*};
}

shown!(Display LowerHex UpperHex Octal Binary);

/// Evaluated at build if a placeholder names something that exists and is no argument.
#[track_caller]
pub const fn name_is_no_argument(problem: &str) {
    panic!("{}", problem)
}

//! How what becomes of a lock turns into what the function gives: by the function's return type. Which return type can
//! carry what is asked by trait, not by reading its name, so that aliases and `impl Trait` work; each trait's message
//! says what to write when it cannot.

use crate::error::{Busy, LockError};

/// What a function gives that is left out while somebody else holds its lock, with `on_busy = skip`.
#[derive(Clone, Debug)]
pub enum Outcome<T> {
    /// It had the lock and ran.
    Ran(T),
    /// Somebody else held the lock; it did not run.
    Skipped(Busy),
}

impl<T> Outcome<T> {
    /// Whether the function ran.
    pub fn is_ran(&self) -> bool {
        matches!(self, Self::Ran(_))
    }

    /// Whether the function was left out.
    pub fn is_skipped(&self) -> bool {
        matches!(self, Self::Skipped(_))
    }

    /// What the function gave, if it ran.
    pub fn ran(self) -> Option<T> {
        match self {
            Self::Ran(value) => Some(value),
            Self::Skipped(_) => None,
        }
    }
}

/// An error that a [`LockError`] can be turned into.
#[diagnostic::on_unimplemented(
    message = "the error type `{Self}` cannot be built from a `LockError`",
    label = "needs `impl From<distlock::LockError> for {Self}`",
    note = "with `thiserror`, add a variant `#[error(transparent)] Lock(#[from] distlock::LockError)`",
    note = "for a type of another crate, say what the call gives instead with `on_busy`, `on_error` and `on_lost`"
)]
pub trait FromLockError: Sized {
    /// The error for the caller.
    fn from_lock_error(err: LockError) -> Self;
}

#[diagnostic::do_not_recommend]
impl<E: From<LockError>> FromLockError for E {
    fn from_lock_error(err: LockError) -> Self {
        err.into()
    }
}

// One trait for each set of options that a return type without an error leaves open, so that one message names them all.
// They are written out, because the compiler shows these lines below its message.

/// A lock that is busy, failed or was lost.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot carry a lock failure; name `on_busy`, `on_error` and `on_lost`, or return a `Result`",
    label = "no room for a `LockError`",
    note = "a job with nothing to return writes `on_busy = skip, on_error = skip, on_lost = finish`; a closure such as `on_busy = |busy| EXPR` gives a value of its own",
    note = "or return `Result<T, E>` where `E: From<distlock::LockError>`"
)]
pub trait CarriesBusyErrorLost: Sized {
    /// The value for the caller.
    fn of(err: LockError) -> Self;
}

impl<T, E: FromLockError> CarriesBusyErrorLost for Result<T, E> {
    fn of(err: LockError) -> Self {
        Err(E::from_lock_error(err))
    }
}

/// A lock that is busy or failed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot carry a lock failure; name `on_busy` and `on_error` too, or return a `Result`",
    label = "no room for a `LockError`",
    note = "`skip` leaves the call out, a closure such as `on_busy = |busy| EXPR` gives a value of its own",
    note = "or return `Result<T, E>` where `E: From<distlock::LockError>`"
)]
pub trait CarriesBusyError: Sized {
    /// The value for the caller.
    fn of(err: LockError) -> Self;
}

impl<T, E: FromLockError> CarriesBusyError for Result<T, E> {
    fn of(err: LockError) -> Self {
        Err(E::from_lock_error(err))
    }
}

/// A lock that is busy or was lost.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot carry a lock failure; name `on_busy` and `on_lost` too, or return a `Result`",
    label = "no room for a `LockError`",
    note = "`on_busy = skip` leaves the call out, `on_lost = finish` lets it run to its end, a closure such as `|busy| EXPR` gives a value of its own",
    note = "or return `Result<T, E>` where `E: From<distlock::LockError>`"
)]
pub trait CarriesBusyLost: Sized {
    /// The value for the caller.
    fn of(err: LockError) -> Self;
}

impl<T, E: FromLockError> CarriesBusyLost for Result<T, E> {
    fn of(err: LockError) -> Self {
        Err(E::from_lock_error(err))
    }
}

/// A lock that is busy.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot carry a lock failure; name `on_busy` too, or return a `Result`",
    label = "no room for a `LockError`",
    note = "`on_busy = skip` leaves the call out, `on_busy = |busy| EXPR` gives a value of its own",
    note = "or return `Result<T, E>` where `E: From<distlock::LockError>`"
)]
pub trait CarriesBusy: Sized {
    /// The value for the caller.
    fn of(err: LockError) -> Self;
}

impl<T, E: FromLockError> CarriesBusy for Result<T, E> {
    fn of(err: LockError) -> Self {
        Err(E::from_lock_error(err))
    }
}

/// A lock that failed or was lost.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot carry a lock failure; name `on_error` and `on_lost` too, or return a `Result`",
    label = "no room for a `LockError`",
    note = "`on_error = skip` leaves the call out, `on_lost = finish` lets it run to its end, a closure such as `|err| EXPR` gives a value of its own",
    note = "or return `Result<T, E>` where `E: From<distlock::LockError>`"
)]
pub trait CarriesErrorLost: Sized {
    /// The value for the caller.
    fn of(err: LockError) -> Self;
}

impl<T, E: FromLockError> CarriesErrorLost for Result<T, E> {
    fn of(err: LockError) -> Self {
        Err(E::from_lock_error(err))
    }
}

/// A lock that failed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot carry a lock failure; name `on_error` too, or return a `Result`",
    label = "no room for a `LockError`",
    note = "`on_error = skip` leaves the call out, `on_error = |err| EXPR` gives a value of its own",
    note = "or return `Result<T, E>` where `E: From<distlock::LockError>`"
)]
pub trait CarriesError: Sized {
    /// The value for the caller.
    fn of(err: LockError) -> Self;
}

impl<T, E: FromLockError> CarriesError for Result<T, E> {
    fn of(err: LockError) -> Self {
        Err(E::from_lock_error(err))
    }
}

/// A lock that was lost.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot carry a lock failure; name `on_lost` too, or return a `Result`",
    label = "no room for a `LockError`",
    note = "`on_lost = finish` lets the body run to its end, `on_lost = |lost| EXPR` gives a value of its own",
    note = "or return `Result<T, E>` where `E: From<distlock::LockError>`"
)]
pub trait CarriesLost: Sized {
    /// The value for the caller.
    fn of(err: LockError) -> Self;
}

impl<T, E: FromLockError> CarriesLost for Result<T, E> {
    fn of(err: LockError) -> Self {
        Err(E::from_lock_error(err))
    }
}

/// A return type that takes an error, for `map_err`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no error for `map_err` to make; return a `Result`",
    label = "not a `Result`",
    note = "or leave `map_err` out and say what the call gives with `on_busy`, `on_error` and `on_lost`"
)]
pub trait MapsError<E>: Sized {
    /// The value for the caller.
    fn failed(err: E) -> Self;
}

impl<T, E> MapsError<E> for Result<T, E> {
    fn failed(err: E) -> Self {
        Err(err)
    }
}

/// A return type that tells success from failure, for `after_ok` and `after_err`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot fail, so `after_ok` and `after_err` say nothing; return a `Result`",
    label = "not a `Result`",
    note = "to keep the key whatever the body gives, write `min_hold`, which counts from the start"
)]
pub trait CanFail {
    /// Whether it is a success.
    fn is_ok(&self) -> bool;
}

impl<T, E> CanFail for Result<T, E> {
    fn is_ok(&self) -> bool {
        Result::is_ok(self)
    }
}

/// A return type that can say that the call was left out because somebody else holds the lock.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot say that the call was skipped; `on_busy = skip` needs `()`, `Option<T>`, `Outcome<T>` or a `Result` of one of them",
    label = "no value that means `skipped`",
    note = "or give a value of your own with `on_busy = |busy| EXPR`"
)]
pub trait SkipBusy: Sized {
    /// `Self`. What else is asked of the type is asked of this, so that one that cannot be skipped is one error.
    type Itself;

    /// Back from that.
    fn itself(itself: Self::Itself) -> Self;

    /// The value of a call that was left out.
    fn skipped(busy: Busy) -> Self;
}

/// A return type that can say that the call was left out because the lock could not be had.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot say that the call was skipped; `on_error = skip` needs `()`, `Option<T>` or a `Result` of one of them",
    label = "no value that means `skipped`",
    note = "or give a value of your own with `on_error = |err| EXPR`"
)]
pub trait SkipError: Sized {
    /// `Self`. What else is asked of the type is asked of this, so that one that cannot be skipped is one error.
    type Itself;

    /// Back from that.
    fn itself(itself: Self::Itself) -> Self;

    /// The value of a call that was left out.
    fn skipped() -> Self;
}

#[diagnostic::do_not_recommend]
impl SkipBusy for () {
    type Itself = Self;

    fn itself((): Self) -> Self {}

    fn skipped(_: Busy) -> Self {}
}

#[diagnostic::do_not_recommend]
impl<T> SkipBusy for Option<T> {
    type Itself = Self;

    fn itself(itself: Self) -> Self {
        itself
    }

    fn skipped(_: Busy) -> Self {
        None
    }
}

#[diagnostic::do_not_recommend]
impl<T> SkipBusy for Outcome<T> {
    type Itself = Self;

    fn itself(itself: Self) -> Self {
        itself
    }

    fn skipped(busy: Busy) -> Self {
        Self::Skipped(busy)
    }
}

impl<T: SkipBusy, E> SkipBusy for Result<T, E> {
    type Itself = Self;

    fn itself(itself: Self) -> Self {
        itself
    }

    fn skipped(busy: Busy) -> Self {
        Ok(T::skipped(busy))
    }
}

#[diagnostic::do_not_recommend]
impl SkipError for () {
    type Itself = Self;

    fn itself((): Self) -> Self {}

    fn skipped() -> Self {}
}

#[diagnostic::do_not_recommend]
impl<T> SkipError for Option<T> {
    type Itself = Self;

    fn itself(itself: Self) -> Self {
        itself
    }

    fn skipped() -> Self {
        None
    }
}

impl<T: SkipError, E> SkipError for Result<T, E> {
    type Itself = Self;

    fn itself(itself: Self) -> Self {
        itself
    }

    fn skipped() -> Self {
        Ok(T::skipped())
    }
}

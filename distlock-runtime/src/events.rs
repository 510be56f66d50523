//! What happens to locks that no return value tells: lost leases, releases that got no answer, outages.
//!
//! With the feature `tracing` they become its events; without it they cost nothing. Texts hold keys and reasons, never
//! a password or a token.

use std::fmt;
use std::time::Duration;

#[cfg(feature = "tracing")]
use crate::doctor::{Finding, Severity};
use crate::error::{LockError, Lost};

macro_rules! emit {
    ($level:ident, $($rest:tt)*) => {
        #[cfg(feature = "tracing")]
        tracing::$level!(target: "distlock", $($rest)*)
    };
}

/// A lease ended before its holder did.
pub(crate) fn lost(lost: &Lost) {
    emit!(warn, key = lost.key(), cause = ?lost.cause(), held_for = ?lost.held_for(), "lock lease lost");
    let _ = lost;
}

/// A release or compensation was not answered and goes on in the background.
pub(crate) fn release_unanswered(key: &str, error: &dyn fmt::Display) {
    emit!(debug, key, %error, "release not answered yet, going on in the background");
    let _ = (key, error);
}

/// A release was refused, which trying again does not mend; the key ends with its ttl unless somebody mends it before.
pub(crate) fn release_refused(key: &str, error: &dyn fmt::Display) {
    emit!(error, key, %error, "release refused, trying again in the background until the key ends with its ttl");
    let _ = (key, error);
}

/// A release was given up; the key ends with its ttl.
pub(crate) fn release_given_up(key: &str, error: &dyn fmt::Display) {
    emit!(error, key, %error, "release given up, the key ends with its ttl");
    let _ = (key, error);
}

/// A renewal got no usable answer and will be tried again.
pub(crate) fn renewal_failed(key: &str, keys: usize, error: &dyn fmt::Display) {
    emit!(warn, key, keys, %error, "renewal without an answer, trying again");
    let _ = (key, keys, error);
}

/// The watchdog came late: its runtime was blocked, or the machine is overloaded.
pub(crate) fn watchdog_late(late: Duration) {
    emit!(warn, ?late, "watchdog late; something blocks its thread or runtime");
    let _ = late;
}

/// A call was skipped, as its `on_busy` or `on_error` says. An error that is skipped is worth an error event.
pub(crate) fn skipped(function: &str, error: &LockError) {
    if error.is_busy() {
        emit!(info, function, %error, "locked call skipped");
    } else {
        emit!(error, function, %error, "locked call skipped");
    }
    let _ = (function, error);
}

/// Waiting goes on although the server cannot be asked.
pub(crate) fn waiting_through_outage(key: &str, error: &LockError) {
    emit!(debug, key, %error, "lock server cannot be asked, waiting on");
    let _ = (key, error);
}

/// Work in the background was dropped: it could not be finished on the spot, and no runtime was there to finish it.
pub(crate) fn background_job_dropped() {
    emit!(warn, "work in the background was dropped outside of a runtime; a key may stand until its ttl");
}

/// A message came for which nobody waits: late, or from somebody else.
pub(crate) fn wake_up_for_nobody() {
    emit!(debug, "a wake-up came for a key that nobody here waits for; ignored");
}

/// The server does not let this process listen; waiters look by themselves.
pub(crate) fn wake_ups_refused(error: &dyn fmt::Display) {
    emit!(warn, %error, "wake-ups are refused, so waiting for locks goes on by polling; allow SUBSCRIBE and the channels `distlock:turn:*`");
    let _ = error;
}

/// One of several servers gives no answers that count any more.
pub(crate) fn server_failed(address: &str, error: &dyn fmt::Display) {
    emit!(warn, server = address, %error, "one of several lock servers fails, the others decide");
    let _ = (address, error);
}

/// It does so again.
pub(crate) fn server_is_back(address: &str) {
    emit!(info, server = address, "a lock server that failed answers again");
    let _ = address;
}

/// Redlock was built on an even number of servers.
pub(crate) fn even_servers(servers: usize) {
    emit!(warn, servers, "an even number of lock servers bears no more failures than one server fewer; name 3 or 5");
    let _ = servers;
}

/// What a look at a lock server found when it was connected to.
#[cfg(feature = "tracing")]
pub(crate) fn finding(finding: &Finding) {
    if finding.severity() == Severity::Problem {
        emit!(error, node = finding.node(), kind = ?finding.kind(), %finding, "lock server");
    } else {
        emit!(warn, node = finding.node(), kind = ?finding.kind(), %finding, "lock server");
    }
}

/// A manager was built in a program with so many lock declarations.
pub(crate) fn declarations(number: usize) {
    if crate::registry::ARE_KNOWN {
        emit!(debug, number, "lock declarations of this program");
    } else {
        emit!(
            warn,
            "this target has no constructors before `main`, so the lock declarations of this program are not known"
        );
    }
    let _ = number;
}

/// Lock declarations contradict each other, where that is no error.
pub(crate) fn declarations_contradict(error: &LockError) {
    emit!(warn, %error, "lock declarations contradict each other");
    let _ = error;
}

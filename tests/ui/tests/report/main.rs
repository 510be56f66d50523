//! What the attribute costs those who use it: the size of futures, how deep locked functions may call each other, and the
//! compiler's time. Each test prints its figures beside those to reach, whether it passes or not.
//!
//! Sizes and depths are the same on every machine and are asserted. Times are not: they are printed to be read.
//! `DISTLOCK_FIGURES=all` adds the ones that take long.

mod build;
#[allow(dead_code, reason = "the judges of single files need more of it")]
#[path = "../compile/compiler.rs"]
mod compiler;
mod expansion;
mod nesting;
mod sizes;
mod time;

use std::io::Write as _;
use std::sync::Mutex;

/// Taken by tests that keep the compiler busy: two at a time would spoil each other's figures.
static COMPILING: Mutex<()> = Mutex::new(());

/// Prints a line that is seen without `--nocapture` too.
fn figure(line: &str) {
    // A figure that cannot be printed is no reason to fail.
    writeln!(std::io::stderr(), "figure: {line}").ok();
}

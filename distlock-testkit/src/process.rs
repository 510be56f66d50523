//! Stopping a process as a debugger, a laptop lid or a busy hypervisor does, and letting it go on.

use std::io;
use std::process::Child;

use rustix::process::{Pid, Signal, kill_process};

/// Stops a child: none of its threads runs until [`thaw`].
///
/// # Errors
///
/// What the system says, if the child is gone.
pub fn freeze(child: &Child) -> io::Result<()> {
    send(child, Signal::STOP)
}

/// Lets a stopped child go on.
///
/// # Errors
///
/// What the system says, if the child is gone.
pub fn thaw(child: &Child) -> io::Result<()> {
    send(child, Signal::CONT)
}

fn send(child: &Child, signal: Signal) -> io::Result<()> {
    Ok(kill_process(Pid::from_child(child), signal)?)
}

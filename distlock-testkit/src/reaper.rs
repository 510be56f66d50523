//! Ends a server whose test process died without dropping it: killed, aborted, or a server kept in a `static`.
//!
//! The parent-death signal would have to be set between fork and exec, which takes `unsafe`. A shell that waits at a
//! pipe does the same: the pipe closes with the parent, however the parent ends.

use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Each line is the process to be ended; an empty one means none. At the end of input the last one counts.
const SCRIPT: &str = r#"
trap '' INT TERM HUP
pid=
while read -r line; do pid=$line; done
if [ -n "$pid" ]; then kill -9 "$pid"; fi
rm -rf -- "$1"
"#;

/// The shell at the other end of the pipe.
#[derive(Debug)]
pub(crate) struct Reaper {
    shell: Child,
}

impl Reaper {
    /// Starts the shell. It removes `folder` when this process, or the handle, is gone.
    pub(crate) fn start(folder: &Path) -> io::Result<Self> {
        let shell = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "distlock-reaper"])
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Out of reach of a Ctrl-C meant for the test.
            .process_group(0)
            .spawn()?;
        Ok(Self { shell })
    }

    /// From now on `pid` dies with this process.
    pub(crate) fn watch(&self, pid: u32) -> io::Result<()> {
        self.tell(&format!("{pid}\n"))
    }

    /// The watched process has been killed; to be called before its number is given back by waiting for it.
    pub(crate) fn forget(&self) -> io::Result<()> {
        self.tell("\n")
    }

    fn tell(&self, line: &str) -> io::Result<()> {
        self.shell.stdin.as_ref().map_or(Ok(()), |mut pipe| pipe.write_all(line.as_bytes()))
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        // It ends by itself at the end of input; waiting leaves no zombie.
        let _ = self.shell.wait();
    }
}

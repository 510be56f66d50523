//! Notes who holds what, in a file to which many processes append. What the lines mean stands in `history.rs`.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::{Event, Moment};

/// Appends what happens to leases to a file that many processes share. Cheap to clone; usable from any task.
#[derive(Clone, Debug)]
pub struct Recorder {
    file: Arc<File>,
    process: Arc<str>,
    next: Arc<AtomicU64>,
}

impl Recorder {
    /// Opens the history at `path`, made if need be, under this process's number.
    ///
    /// # Errors
    ///
    /// What the system says when the file cannot be opened.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::open_as(path, process::id().to_string())
    }

    /// Opens the history under a name that no other recorder of this history uses.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_as(path: impl AsRef<Path>, process: impl Into<String>) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        Ok(Self { file: Arc::new(file), process: process.into().into(), next: Arc::default() })
    }

    /// Notes that this process has just been granted `key`, and believes to hold it for `valid_for` from now.
    ///
    /// To be called first thing under the lock, with what the lease says it has left.
    ///
    /// # Errors
    ///
    /// What the system says when the line cannot be written.
    pub fn granted(&self, key: &str, fencing: u64, valid_for: Duration) -> io::Result<Holding> {
        let at = Moment::now();
        let lease = format!("{}#{}", self.process, self.next.fetch_add(1, Ordering::Relaxed));
        self.append(&Event::Granted {
            lease: lease.clone(),
            process: self.process.to_string(),
            key: key.to_owned(),
            fencing,
            at,
            valid_until: at + valid_for,
        })?;
        Ok(Holding { recorder: self.clone(), lease, ended: false })
    }

    /// Notes that a process, by the name of its recorder, is dead. For the parent that killed it, after the wait.
    ///
    /// # Errors
    ///
    /// What the system says when the line cannot be written.
    pub fn died(&self, process: &str) -> io::Result<()> {
        self.append(&Event::Died { process: process.to_owned(), at: Moment::now() })
    }

    /// Appends an event made by hand.
    ///
    /// # Errors
    ///
    /// What the system says when the line cannot be written.
    pub fn append(&self, event: &Event) -> io::Result<()> {
        let line = format!("{event}\n");
        // One write, so that the lines of different processes never mix; a partial one cannot be mended.
        let written = (&*self.file).write(line.as_bytes())?;
        if written == line.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }
}

/// Stands for the time in which a process believes to hold a key; dropping it notes the end.
///
/// To be kept in the body of the lock, so that it goes before the lock is released. A process that dies with it is
/// taken to believe until its lease ends or its parent notes the death.
#[derive(Debug)]
#[must_use = "dropping this notes the end of the lease"]
pub struct Holding {
    recorder: Recorder,
    lease: String,
    ended: bool,
}

impl Holding {
    /// Notes that the lease has been renewed and is good for `valid_for` from now.
    ///
    /// # Errors
    ///
    /// What the system says when the line cannot be written.
    pub fn extend(&self, valid_for: Duration) -> io::Result<()> {
        let at = Moment::now();
        self.recorder.append(&Event::Extended { lease: self.lease.clone(), at, valid_until: at + valid_for })
    }

    /// Notes the end, as dropping does, and says whether that worked.
    ///
    /// # Errors
    ///
    /// What the system says when the line cannot be written.
    pub fn end(mut self) -> io::Result<()> {
        self.ended = true;
        self.note_end()
    }

    fn note_end(&self) -> io::Result<()> {
        self.recorder.append(&Event::Ended { lease: self.lease.clone(), at: Moment::now() })
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        if !self.ended {
            // If this fails, the lease counts as held to its deadline: a false alarm, never a hidden overlap.
            let _ = self.note_end();
        }
    }
}

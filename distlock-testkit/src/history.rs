//! Who held what: the events of a run, as lines of a file, and the leases that they add up to.
//!
//! All times are of `CLOCK_MONOTONIC`, which the processes of one machine share, so that events of different
//! processes can be compared. Writing the file is the business of `recorder.rs`, judging it that of `checker.rs`.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::io;
use std::ops::{Add, Sub};
use std::path::Path;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A point in time on the clock that all processes of this machine share, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// This very moment.
    #[must_use]
    pub fn now() -> Self {
        let time = clock_gettime(ClockId::Monotonic);
        // The clock counts from the start of the machine: never negative, and 584 years fit.
        let (seconds, nanos) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
        Self(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
    }

    /// A moment of a made-up history, in nanoseconds.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock's start.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to this moment; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Moment {
    type Output = Self;

    fn sub(self, time: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// One thing that happened. `lease` tells the leases of a history apart; it is made by the [`Recorder`](crate::Recorder).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A process was told that it holds a key.
    Granted {
        /// Names the lease.
        lease: String,
        /// Who was told.
        process: String,
        /// What it holds.
        key: String,
        /// With which fencing token.
        fencing: u64,
        /// When it was told.
        at: Moment,
        /// How long it believes to hold the key if nothing else happens.
        valid_until: Moment,
    },
    /// The holder learnt that it may hold the key longer; it has held it all the time.
    Extended {
        /// Names the lease.
        lease: String,
        /// When it learnt it.
        at: Moment,
        /// How long it believes to hold the key now.
        valid_until: Moment,
    },
    /// The holder stopped believing that it holds the key: done, cancelled, or told that the lease is lost.
    Ended {
        /// Names the lease.
        lease: String,
        /// When it stopped.
        at: Moment,
    },
    /// A process was seen dead; it believes nothing any more.
    Died {
        /// Who died.
        process: String,
        /// When it was dead for sure.
        at: Moment,
    },
}

impl fmt::Display for Event {
    /// The event as a line of the history file, without the line's end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granted { lease, process, key, fencing, at, valid_until } => write!(
                f,
                "granted {} {} {} {fencing} {} {}",
                Word(lease),
                Word(process),
                Word(key),
                at.0,
                valid_until.0
            ),
            Self::Extended { lease, at, valid_until } => {
                write!(f, "extended {} {} {}", Word(lease), at.0, valid_until.0)
            }
            Self::Ended { lease, at } => write!(f, "ended {} {}", Word(lease), at.0),
            Self::Died { process, at } => write!(f, "died {} {}", Word(process), at.0),
        }
    }
}

impl Event {
    /// Reads what [`Display`](fmt::Display) wrote.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let kind = words.next()?;
        let name = unescape(words.next()?)?;
        let rest: Vec<&str> = words.collect();
        let moment = |word: &str| word.parse().ok().map(Moment);
        Some(match (kind, rest.as_slice()) {
            ("granted", [process, key, fencing, at, valid_until]) => Self::Granted {
                lease: name,
                process: unescape(process)?,
                key: unescape(key)?,
                fencing: fencing.parse().ok()?,
                at: moment(at)?,
                valid_until: moment(valid_until)?,
            },
            ("extended", [at, valid_until]) => {
                Self::Extended { lease: name, at: moment(at)?, valid_until: moment(valid_until)? }
            }
            ("ended", [at]) => Self::Ended { lease: name, at: moment(at)? },
            ("died", [at]) => Self::Died { process: name, at: moment(at)? },
            _ => return None,
        })
    }
}

/// A name in which nothing can be taken for the end of the word or of the line.
struct Word<'a>(&'a str);

impl fmt::Display for Word<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("%");
        }
        for char in self.0.chars() {
            if char.is_whitespace() || char.is_control() || char == '%' {
                write!(f, "%{:x};", u32::from(char))?;
            } else {
                write!(f, "{char}")?;
            }
        }
        Ok(())
    }
}

fn unescape(word: &str) -> Option<String> {
    if word == "%" {
        return Some(String::new());
    }
    let mut parts = word.split('%');
    let mut text = parts.next()?.to_owned();
    for part in parts {
        let (code, after) = part.split_once(';')?;
        text.push(char::from_u32(u32::from_str_radix(code, 16).ok()?)?);
        text.push_str(after);
    }
    Some(text)
}

/// A line of a history file that says nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    number: usize,
    text: String,
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} of the history is no event: `{}`", self.number, self.text)
    }
}

impl std::error::Error for BadLine {}

/// One lease as its holder saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Names the lease.
    pub lease: String,
    /// Who held it.
    pub process: String,
    /// What was held.
    pub key: String,
    /// With which fencing token.
    pub fencing: u64,
    /// When the holder was told.
    pub from: Moment,
    /// When the holder's belief ends: at its deadline, its own end or its death, whichever came first.
    pub until: Moment,
    /// True when the holder itself said that it was done.
    pub ended: bool,
}

/// All events of a run, in the order in which they were written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    events: Vec<Event>,
}

impl History {
    /// Reads a history file; one that does not exist has no events.
    ///
    /// # Errors
    ///
    /// What the system says, or [`io::ErrorKind::InvalidData`] with a [`BadLine`].
    pub fn read(path: impl AsRef<Path>) -> io::Result<Self> {
        match fs::read_to_string(path) {
            Ok(text) => Self::parse(&text).map_err(|bad| io::Error::new(io::ErrorKind::InvalidData, bad)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    /// Reads the lines of a history.
    ///
    /// # Errors
    ///
    /// The first [`BadLine`]: a history with holes proves nothing.
    pub fn parse(text: &str) -> Result<Self, BadLine> {
        let lines = text.lines().enumerate();
        let events = lines.map(|(index, line)| {
            Event::parse(line).ok_or_else(|| BadLine { number: index + 1, text: line.to_owned() })
        });
        events.collect::<Result<_, _>>().map(|events| Self { events })
    }

    /// The events as they were written.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// The leases that the events add up to, in the order in which they were granted.
    #[must_use]
    pub fn leases(&self) -> Vec<Held> {
        let mut leases: Vec<Held> = Vec::new();
        let mut index: HashMap<&str, usize> = HashMap::new();
        let mut ends: HashMap<&str, Moment> = HashMap::new();
        let mut deaths: HashMap<&str, Moment> = HashMap::new();
        for event in &self.events {
            match event {
                Event::Granted { lease, process, key, fencing, at, valid_until } => {
                    index.insert(lease, leases.len());
                    leases.push(Held {
                        lease: lease.clone(),
                        process: process.clone(),
                        key: key.clone(),
                        fencing: *fencing,
                        from: *at,
                        until: *valid_until,
                        ended: false,
                    });
                }
                Event::Extended { lease, valid_until, .. } => {
                    if let Some(held) = index.get(lease.as_str()).and_then(|at| leases.get_mut(*at)) {
                        held.until = held.until.max(*valid_until);
                    }
                }
                Event::Ended { lease, at } => {
                    ends.entry(lease).or_insert(*at);
                }
                Event::Died { process, at } => {
                    deaths.entry(process).or_insert(*at);
                }
            }
        }
        for held in &mut leases {
            let end = ends.get(held.lease.as_str());
            held.ended = end.is_some();
            for stop in [end, deaths.get(held.process.as_str())].into_iter().flatten() {
                held.until = held.until.min(*stop);
            }
        }
        leases.sort_by_key(|held| held.from);
        leases
    }

    /// The first lease of `key` that was granted after `after`, as for the time that a takeover took.
    #[must_use]
    pub fn next_grant(&self, key: &str, after: Moment) -> Option<Held> {
        self.leases().into_iter().find(|held| held.key == key && held.from > after)
    }
}

impl FromIterator<Event> for History {
    fn from_iter<I: IntoIterator<Item = Event>>(events: I) -> Self {
        Self { events: events.into_iter().collect() }
    }
}

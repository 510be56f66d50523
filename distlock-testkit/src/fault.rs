//! What can be made to go wrong between a client and a server, and with which command.
//!
//! The same faults work in the embedded server, in virtual time, and in the proxy in front of a real server.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::wire::Command;

/// One thing that goes wrong with one command.
///
/// A connection answers in order, so an answer cannot go missing alone: the next one would be taken for it. What drops
/// something therefore drops all that follows in the same direction of the same connection, as a network does.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The command, and all behind it on its connection, reaches the server this much later.
    DelayCommand(Duration),
    /// The command is executed at once; its answer, and all behind it, comes this much later.
    DelayReply(Duration),
    /// The command is executed; its answer and all later ones of this connection are lost. The connection stays open
    /// and goes on to execute.
    DropReply,
    /// The connection is closed, and the command was not executed.
    CutBefore,
    /// The command is executed, and the connection is closed before the answer.
    CutAfter,
    /// Neither this command nor any later one of this connection is executed or answered. The connection stays open.
    BlackHole,
    /// The connection is reset, and the command was not executed. In memory there is no such thing; it is closed.
    Reset,
    /// The command is not executed and answered with this error.
    Refuse(Refusal),
    /// The command is executed and answered; a copy of it is executed this much later, and that answer is lost.
    Duplicate(Duration),
}

/// An error with which a server refuses a command it could otherwise execute.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// `BUSY`: a script has been running for too long.
    Busy,
    /// `LOADING`: the server has just started.
    Loading,
    /// `READONLY`: the server is a replica now.
    ReadOnly,
    /// `OOM`: no memory is left for a write.
    Oom,
    /// `NOPERM`: the user may not use the command.
    NoPerm,
    /// `NOSCRIPT`: the script cache was flushed.
    NoScript,
    /// `CLUSTERDOWN`: too many nodes are gone.
    ClusterDown,
    /// `MISCONF`: writes to disk fail.
    MisConf,
    /// `TRYAGAIN`: slots are being moved.
    TryAgain,
    /// `MASTERDOWN`: a replica lost its primary.
    MasterDown,
    /// Any other, with its code, as in `ERR no`.
    Other(String),
}

impl Refusal {
    /// The text that servers send, without the leading `-`.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Busy => "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
            Self::Loading => "LOADING Redis is loading the dataset in memory",
            Self::ReadOnly => "READONLY You can't write against a read only replica.",
            Self::Oom => "OOM command not allowed when used memory > 'maxmemory'.",
            Self::NoPerm => "NOPERM this user has no permissions to run this command",
            Self::NoScript => "NOSCRIPT No matching script. Please use EVAL.",
            Self::ClusterDown => "CLUSTERDOWN The cluster is down",
            Self::MisConf => {
                "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk."
            }
            Self::TryAgain => "TRYAGAIN Multiple keys request during rehashing of slot",
            Self::MasterDown => "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
            Self::Other(text) => text,
        }
    }
}

/// Which commands a fault is meant for. What is not asked for matches; names and scripts are compared as a server does.
///
/// ```
/// use distlock_testkit::Match;
///
/// let third_read = Match::nth(3).command("GET");
/// let every_use_of_a_lock = Match::every().command("EVALSHA").key("invoice:");
/// # let _ = (third_read, every_use_of_a_lock);
/// ```
#[derive(Clone)]
#[must_use]
pub struct Match {
    turns: Turns,
    name: Option<String>,
    script: Option<Script>,
    key: Option<String>,
    test: Option<Arc<Test>>,
}

type Test = dyn Fn(&[String]) -> bool + Send + Sync;

#[derive(Clone, Copy, Debug)]
enum Turns {
    Every,
    Only(u64),
    From(u64),
}

#[derive(Clone)]
struct Script {
    source: String,
    sha: String,
}

impl Match {
    fn new(turns: Turns) -> Self {
        Self { turns, name: None, script: None, key: None, test: None }
    }

    /// Every command that fits.
    pub fn every() -> Self {
        Self::new(Turns::Every)
    }

    /// Only the n-th command that fits, counted from 1 and from the injection.
    pub fn nth(n: u64) -> Self {
        Self::new(Turns::Only(n))
    }

    /// The n-th command that fits and all later ones.
    pub fn from_nth(n: u64) -> Self {
        Self::new(Turns::From(n))
    }

    /// Commands of this name.
    pub fn command(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// `EVAL` and `EVALSHA` of the script with exactly this source.
    pub fn script(mut self, source: impl Into<String>) -> Self {
        let source = source.into();
        let sha = sha1(source.as_bytes());
        self.script = Some(Script { source, sha });
        self
    }

    /// Commands with a key, or a channel, that has this in it.
    pub fn key(mut self, part: impl Into<String>) -> Self {
        self.key = Some(part.into());
        self
    }

    /// Commands for which `test` is true; it is given the name and the arguments.
    pub fn when(mut self, test: impl Fn(&[String]) -> bool + Send + Sync + 'static) -> Self {
        self.test = Some(Arc::new(test));
        self
    }

    fn fits(&self, command: &Command) -> bool {
        let name = command.first().map_or(&b""[..], Vec::as_slice);
        let is = |wanted: &str| name.eq_ignore_ascii_case(wanted.as_bytes());
        let runs = |script: &Script| {
            let what = command.get(1).map_or(&b""[..], Vec::as_slice);
            (is("EVALSHA") && what.eq_ignore_ascii_case(script.sha.as_bytes()))
                || (is("EVAL") && what == script.source.as_bytes())
        };
        self.name.as_deref().is_none_or(is)
            && self.script.as_ref().is_none_or(runs)
            && self.key.as_ref().is_none_or(|part| keys_of(command).iter().any(|key| contains(key, part)))
            && self.test.as_ref().is_none_or(|test| {
                let parts: Vec<_> = command.iter().map(|part| String::from_utf8_lossy(part).into_owned()).collect();
                test(&parts)
            })
    }
}

impl fmt::Debug for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Match")
            .field("turns", &self.turns)
            .field("command", &self.name)
            .field("script", &self.script.as_ref().map(|script| &script.sha))
            .field("key", &self.key)
            .field("when", &self.test.is_some())
            .finish()
    }
}

fn contains(key: &[u8], part: &str) -> bool {
    String::from_utf8_lossy(key).contains(part)
}

/// The keys, or channels, that a command names.
fn keys_of(command: &Command) -> &[Vec<u8>] {
    let name = command.first().map(|name| String::from_utf8_lossy(name).to_ascii_uppercase()).unwrap_or_default();
    let all = match name.as_str() {
        "EVAL" | "EVALSHA" => {
            let count = command.get(2).and_then(|count| std::str::from_utf8(count).ok()?.parse::<usize>().ok());
            command.get(3..).map(|rest| &rest[..rest.len().min(count.unwrap_or(0))])
        }
        "DEL" | "UNLINK" | "EXISTS" | "SUBSCRIBE" | "UNSUBSCRIBE" | "SSUBSCRIBE" | "SUNSUBSCRIBE" => command.get(1..),
        _ => command.get(1..2),
    };
    all.unwrap_or_default()
}

pub(crate) fn sha1(bytes: &[u8]) -> String {
    sha1_smol::Sha1::from(bytes).digest().to_string()
}

/// A fault that has been injected: tells how often it struck, and takes it back. Dropping this leaves it in place.
#[derive(Clone, Debug)]
pub struct Injected {
    hits: watch::Receiver<u64>,
    active: Arc<AtomicBool>,
}

impl Injected {
    /// How many commands it has struck.
    #[must_use]
    pub fn hits(&self) -> u64 {
        *self.hits.borrow()
    }

    /// Waits until it has struck at least once.
    ///
    /// Waits for ever if it was taken back or cleared before.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn struck(&self) {
        let mut hits = self.hits.clone();
        if hits.wait_for(|hits| *hits > 0).await.is_err() {
            std::future::pending().await
        }
    }

    /// Takes the fault back. What it has done stays done: a silent connection stays silent.
    pub fn remove(&self) {
        self.active.store(false, Ordering::Relaxed);
    }
}

/// The faults that are in force, in the order of their injection.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    rules: Mutex<Vec<Rule>>,
}

#[derive(Debug)]
struct Rule {
    matches: Match,
    fault: Fault,
    seen: u64,
    hits: watch::Sender<u64>,
    active: Arc<AtomicBool>,
}

impl Rules {
    pub(crate) fn inject(&self, matches: Match, fault: Fault) -> Injected {
        let (hits, watched) = watch::channel(0);
        let active = Arc::new(AtomicBool::new(true));
        let injected = Injected { hits: watched, active: Arc::clone(&active) };
        self.lock().push(Rule { matches, fault, seen: 0, hits, active });
        injected
    }

    pub(crate) fn clear(&self) {
        self.lock().clear();
    }

    /// What goes wrong with this command. Every rule that fits counts it; the first whose turn it is decides.
    pub(crate) fn decide(&self, command: &Command) -> Option<Fault> {
        let mut rules = self.lock();
        rules.retain(|rule| rule.active.load(Ordering::Relaxed));
        let mut decided = None;
        for rule in rules.iter_mut().filter(|rule| rule.matches.fits(command)) {
            rule.seen += 1;
            let is_due = match rule.matches.turns {
                Turns::Every => true,
                Turns::Only(n) => rule.seen == n,
                Turns::From(n) => rule.seen >= n,
            };
            if is_due && decided.is_none() {
                rule.hits.send_modify(|hits| *hits += 1);
                decided = Some(rule.fault.clone());
            }
        }
        decided
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Rule>> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(parts: &[&str]) -> Command {
        parts.iter().map(|part| part.as_bytes().to_vec()).collect()
    }

    #[test]
    fn the_nth_command_that_fits_is_struck_and_no_other() {
        let rules = Rules::default();
        let second = rules.inject(Match::nth(2).command("get").key("inv"), Fault::DropReply);
        let read = |key| rules.decide(&command(&["GET", key]));
        assert_eq!(read("invoice"), None);
        assert_eq!(read("other"), None);
        assert_eq!(rules.decide(&command(&["SET", "invoice", "1"])), None);
        assert_eq!(read("invoice"), Some(Fault::DropReply));
        assert_eq!(read("invoice"), None);
        assert_eq!(second.hits(), 1);
    }

    #[test]
    fn all_from_the_nth_on_are_struck_until_it_is_taken_back() {
        let rules = Rules::default();
        let injected = rules.inject(Match::from_nth(2), Fault::BlackHole);
        let ping = || rules.decide(&command(&["PING"]));
        assert_eq!([ping(), ping(), ping()], [None, Some(Fault::BlackHole), Some(Fault::BlackHole)]);
        injected.remove();
        assert_eq!(ping(), None);
        rules.inject(Match::every(), Fault::Reset);
        rules.clear();
        assert_eq!(ping(), None);
    }

    #[test]
    fn a_script_is_known_by_its_source_and_by_its_hash() {
        let matches = Match::every().script("return 1").key("b");
        assert!(matches.fits(&command(&["EVAL", "return 1", "2", "a", "b"])));
        assert!(matches.fits(&command(&["evalsha", "E0E1F9FABFC9D4800C877A703B823AC0578FF8DB", "1", "b"])));
        assert!(!matches.fits(&command(&["EVAL", "return 2", "1", "b"])));
        assert!(!matches.fits(&command(&["EVAL", "return 1", "1", "a", "b"])), "an argument is no key");
        assert!(!matches.fits(&command(&["GET", "b"])));
        assert!(!matches.fits(&command(&["EVAL"])));
    }

    #[test]
    fn the_first_injected_fault_decides_and_the_others_count_on() {
        let rules = Rules::default();
        let first = rules.inject(Match::nth(1), Fault::CutAfter);
        let second = rules.inject(Match::nth(2), Fault::CutBefore);
        assert_eq!(rules.decide(&command(&["PING"])), Some(Fault::CutAfter));
        assert_eq!(rules.decide(&command(&["PING"])), Some(Fault::CutBefore));
        assert_eq!((first.hits(), second.hits()), (1, 1));
    }
}

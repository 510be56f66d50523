//! The commands an embedded server knows: how they are found, checked and refused. What they do is in the other files
//! of this folder, one for each family.

mod client;
mod expiry;
mod hashes;
mod keys;
mod lists;
mod pubsub;
mod scripts;
mod server;
mod sorted;
mod strings;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::OnceLock;

use super::core::Core;
use super::data::Bytes;
use crate::wire::{Answer, Protocol};

/// Why a command is refused, in the server's own words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure(pub(crate) Cow<'static, str>);

impl Failure {
    pub(crate) const WRONG_TYPE: Self = Self::of("WRONGTYPE Operation against a key holding the wrong kind of value");
    pub(crate) const SYNTAX: Self = Self::of("ERR syntax error");
    pub(crate) const NO_INTEGER: Self = Self::of("ERR value is not an integer or out of range");
    pub(crate) const NO_FLOAT: Self = Self::of("ERR value is not a valid float");

    pub(crate) const fn of(text: &'static str) -> Self {
        Self(Cow::Borrowed(text))
    }

    fn arity(name: &str) -> Self {
        Self(format!("ERR wrong number of arguments for '{name}' command").into())
    }

    fn subcommand(container: &str, given: &[u8]) -> Self {
        let given = String::from_utf8_lossy(given);
        Self(format!("ERR unknown subcommand '{given}'. Try {container} HELP.").into())
    }

    fn expire_time(command: &str) -> Self {
        Self(format!("ERR invalid expire time in '{command}' command").into())
    }
}

impl From<Failure> for Answer {
    fn from(failure: Failure) -> Self {
        Self::Error(failure.0.into_owned())
    }
}

pub(crate) type Outcome = Result<Answer, Failure>;

/// One command while it is executed.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) core: &'a mut Core,
    /// Who sent it.
    pub(crate) client: u64,
}

type Run = fn(&mut Call<'_>, &[Bytes]) -> Outcome;

/// What is known of a command before it is executed.
#[derive(Clone, Copy, Debug)]
struct Spec {
    name: &'static str,
    /// How many parts with the name; negative: at least so many.
    arity: i32,
    run: Run,
    scripts: bool,
    /// May be sent before a login.
    open: bool,
    /// May be sent by a subscriber that speaks RESP2.
    subscribed: bool,
}

impl Spec {
    const fn new(name: &'static str, arity: i32, run: Run) -> Self {
        Self { name, arity, run, scripts: true, open: false, subscribed: false }
    }

    /// Not for scripts.
    const fn outside(name: &'static str, arity: i32, run: Run) -> Self {
        Self { scripts: false, ..Self::new(name, arity, run) }
    }

    const fn open(self) -> Self {
        Self { open: true, ..self }
    }

    const fn subscribed(self) -> Self {
        Self { subscribed: true, ..self }
    }

    fn fits(&self, parts: usize) -> bool {
        let least = self.arity.unsigned_abs() as usize;
        if self.arity < 0 { parts >= least } else { parts == least }
    }
}

fn find(name: &[u8]) -> Option<&'static Spec> {
    static SPECS: OnceLock<HashMap<&'static str, Spec>> = OnceLock::new();
    let specs = SPECS.get_or_init(|| {
        let families = [
            strings::SPECS,
            keys::SPECS,
            expiry::SPECS,
            lists::SPECS,
            hashes::SPECS,
            sorted::SPECS,
            pubsub::SPECS,
            scripts::SPECS,
            server::SPECS,
            client::SPECS,
        ];
        families.into_iter().flatten().map(|spec| (spec.name, *spec)).collect()
    });
    specs.get(String::from_utf8_lossy(name).to_ascii_lowercase().as_str())
}

/// Executes a command that came over a connection, or by direct access.
pub(crate) fn execute(core: &mut Core, client: u64, parts: &[Bytes]) -> Answer {
    let now = core.clock.micros();
    core.set_now(now);
    check(core, client, parts)
        .and_then(|spec| (spec.run)(&mut Call { core, client }, parts))
        .unwrap_or_else(Answer::from)
}

fn check(core: &Core, client: u64, parts: &[Bytes]) -> Result<&'static Spec, Failure> {
    let spec = parts.first().and_then(|name| find(name)).ok_or_else(|| unknown(parts))?;
    if !spec.fits(parts.len()) {
        return Err(Failure::arity(spec.name));
    }
    let session = core.clients.get(&client);
    if !spec.open && core.password.is_some() && session.is_some_and(|session| !session.logged_in) {
        return Err(Failure::of("NOAUTH Authentication required."));
    }
    let listens = |session: &super::core::Client| session.protocol == Protocol::Resp2 && session.is_subscribed();
    if !spec.subscribed && session.is_some_and(listens) {
        return Err(Failure(
            format!(
                "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context",
                spec.name
            )
            .into(),
        ));
    }
    Ok(spec)
}

fn unknown(parts: &[Bytes]) -> Failure {
    let (name, arguments) = parts.split_first().map_or((&b""[..], &[][..]), |(name, rest)| (name, rest));
    let mut text = format!("ERR unknown command '{}', with args beginning with: ", shown(name));
    for argument in arguments {
        if text.len() > 128 {
            break;
        }
        text.push_str(&format!("'{}' ", shown(argument)));
    }
    Failure(text.into())
}

fn shown(part: &[u8]) -> String {
    String::from_utf8_lossy(&part[..part.len().min(128)]).into_owned()
}

/// Executes a command that a script calls. The time is that of the script's start.
pub(crate) fn execute_in_script(core: &mut Core, client: u64, parts: &[Bytes]) -> Answer {
    let spec = match parts.first().and_then(|name| find(name)) {
        None => return Answer::Error("ERR Unknown Redis command called from script".to_owned()),
        Some(spec) if !spec.fits(parts.len()) => {
            return Answer::Error("ERR Wrong number of args calling Redis command from script".to_owned());
        }
        Some(spec) if !spec.scripts => {
            return Answer::Error("ERR This Redis command is not allowed from script".to_owned());
        }
        Some(spec) => spec,
    };
    (spec.run)(&mut Call { core, client }, parts).unwrap_or_else(Answer::from)
}

/// Compares a word of the command with an option's name.
fn is(part: &[u8], word: &str) -> bool {
    part.eq_ignore_ascii_case(word.as_bytes())
}

/// A whole number in the only spelling that servers take: no sign but `-`, no space, no leading zero.
fn integer(part: &[u8]) -> Result<i64, Failure> {
    let text = std::str::from_utf8(part).map_err(|_| Failure::NO_INTEGER)?;
    let number: i64 = text.parse().map_err(|_| Failure::NO_INTEGER)?;
    if number.to_string() == text { Ok(number) } else { Err(Failure::NO_INTEGER) }
}

/// A number as a score may be written, with `inf` and `-inf`.
fn float(part: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(part).ok()?;
    text.parse::<f64>().ok().filter(|number| !number.is_nan())
}

/// Turns a start and an end that count from the back when negative into a range of positions.
fn range(start: i64, end: i64, length: usize) -> std::ops::Range<usize> {
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    let place = |at: i64| if at < 0 { at.saturating_add(length) } else { at };
    let (start, end) = (place(start).max(0), place(end).min(length - 1));
    if start > end {
        return 0..0;
    }
    // Both lie between 0 and the length, which came from a `usize`.
    usize::try_from(start).unwrap_or_default()..usize::try_from(end + 1).unwrap_or_default()
}

//! The server's own log of commands, so that a test can say exactly which ones were sent.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::{Connection, Error, Reply, Result};

/// Addresses of the kit's own connections, whose commands are nobody's business.
pub(crate) type Own = Arc<Mutex<Vec<String>>>;

/// Notes a connection as the kit's own.
pub(crate) fn disown(own: &Own, address: SocketAddr) {
    own.lock().unwrap_or_else(PoisonError::into_inner).push(address.to_string());
}

/// One command as the server saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Address of the client that sent it, or `lua` for a command that a script ran.
    pub client: String,
    /// The command and its arguments, as they were sent.
    pub parts: Vec<String>,
}

impl Seen {
    /// The command's name in upper case.
    #[must_use]
    pub fn name(&self) -> String {
        self.parts.first().map(|name| name.to_ascii_uppercase()).unwrap_or_default()
    }

    /// True for a command that a script ran, false for one that came over the network.
    #[must_use]
    pub fn is_from_script(&self) -> bool {
        self.client == "lua"
    }
}

/// Watches a server. Sees every command that the server runs after this was made, but those of the kit itself.
#[derive(Debug)]
pub struct Monitor {
    log: Connection,
    marks: Connection,
    own: Own,
    next_mark: u64,
}

impl Monitor {
    pub(crate) fn start(mut log: Connection, marks: Connection, own: Own) -> Result<Self> {
        disown(&own, log.local_addr());
        disown(&own, marks.local_addr());
        log.command(&["MONITOR"])?;
        Ok(Self { log, marks, own, next_mark: 0 })
    }

    /// Everything the server has run since the monitor was made, or since the last call.
    ///
    /// Complete: commands that were answered before this call are in the list.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when the server is gone or frozen.
    pub fn seen(&mut self) -> Result<Vec<Seen>> {
        // The log comes in the order of execution, so whatever ran before the mark stands before it.
        self.next_mark += 1;
        let mark = format!("distlock-testkit-mark-{}", self.next_mark);
        self.marks.command(&["ECHO", &mark])?;
        let marks = self.marks.local_addr().to_string();
        let mut list = Vec::new();
        loop {
            let seen = self.read()?;
            if seen.client == marks && seen.parts.get(1) == Some(&mark) {
                return Ok(list);
            }
            if !self.is_own(&seen) {
                list.push(seen);
            }
        }
    }

    /// As [`seen`](Self::seen), without what scripts ran: the commands that came over the network.
    ///
    /// # Errors
    ///
    /// As [`seen`](Self::seen).
    pub fn sent(&mut self) -> Result<Vec<Seen>> {
        let mut list = self.seen()?;
        list.retain(|seen| !seen.is_from_script());
        Ok(list)
    }

    /// Waits until a command that fits is run, and gives it; `None` when `limit` has passed.
    ///
    /// Commands that do not fit are passed over and will not be seen again.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when the connection breaks.
    pub fn wait_for(&mut self, limit: Duration, fits: impl Fn(&Seen) -> bool) -> Result<Option<Seen>> {
        let until = Instant::now() + limit;
        let found = loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break None;
            }
            self.log.set_patience(left)?;
            match self.read() {
                Ok(seen) if !self.is_own(&seen) && fits(&seen) => break Some(seen),
                Ok(_) => {}
                Err(Error::Io { source, .. }) if is_timeout(&source) => break None,
                Err(error) => return Err(error),
            }
        };
        self.log.set_patience(Duration::from_secs(5))?;
        Ok(found)
    }

    fn is_own(&self, seen: &Seen) -> bool {
        self.own.lock().unwrap_or_else(PoisonError::into_inner).contains(&seen.client)
    }

    fn read(&mut self) -> Result<Seen> {
        match self.log.receive()? {
            Reply::Text(line) => parse(&line).ok_or_else(|| Error::Protocol(format!("`{line}` in the command log"))),
            other => Err(Error::Protocol(format!("{other:?} in the command log"))),
        }
    }
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
}

/// Parses `1339518083.107412 [0 127.0.0.1:60866] "keys" "*"`.
fn parse(line: &str) -> Option<Seen> {
    let (_time, rest) = line.split_once(" [")?;
    let (client, rest) = rest.split_once("] ")?;
    let (_database, client) = client.split_once(' ')?;
    let mut parts = Vec::new();
    let mut rest = rest.trim_start();
    while !rest.is_empty() {
        let (part, after) = unquote(rest.strip_prefix('"')?)?;
        parts.push(part);
        rest = after.trim_start();
    }
    Some(Seen { client: client.to_owned(), parts })
}

/// Reads up to the closing quote; gives the text and what follows it.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut bytes = Vec::new();
    let mut chars = text.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => {
                return Some((String::from_utf8_lossy(&bytes).into_owned(), &text[at + 1..]));
            }
            '\\' => bytes.push(match chars.next()?.1 {
                'n' => b'\n',
                'r' => b'\r',
                't' => b'\t',
                'a' => 7,
                'b' => 8,
                'x' => {
                    let high = chars.next()?.1.to_digit(16)?;
                    let low = chars.next()?.1.to_digit(16)?;
                    u8::try_from(high * 16 + low).ok()?
                }
                other => u8::try_from(other).ok()?,
            }),
            other => bytes.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_log_is_taken_apart() {
        let seen = parse(r#"1.2 [0 127.0.0.1:6] "set" "a \"b\" \\" "l1\nl2\x00\xc3\xa4" """#).unwrap();
        assert_eq!(seen.client, "127.0.0.1:6");
        assert_eq!(seen.name(), "SET");
        assert_eq!(seen.parts[1..], [r#"a "b" \"#, "l1\nl2\0ä", ""]);
        assert!(!seen.is_from_script());
        assert!(parse(r#"1.2 [0 lua] "get" "k""#).unwrap().is_from_script());
    }

    #[test]
    fn what_is_no_line_of_the_log_is_not_guessed_at() {
        for line in ["", "OK", "1.2 [0 x] get", r#"1.2 [0 x] "get"#, r#"1.2 [0 x] "\xg0""#] {
            assert_eq!(parse(line), None, "{line}");
        }
    }
}

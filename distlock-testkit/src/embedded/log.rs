//! What an embedded server has executed: which command, when, for whom.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use super::data::Bytes;

/// So many commands are kept; a server that runs for hours must not eat the machine.
const KEPT: usize = 100_000;

/// A command that an embedded server has executed, in the order of execution.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Executed {
    /// When, since the server was started, by tokio's clock.
    pub at: Duration,
    /// The number of the connection; 0 for direct access through the handle.
    pub connection: u64,
    /// The name and the arguments. Bytes that are no UTF-8 are shown as `U+FFFD`.
    pub parts: Vec<String>,
}

impl Executed {
    /// The command's name in capital letters.
    #[must_use]
    pub fn name(&self) -> String {
        self.parts.first().map(|name| name.to_ascii_uppercase()).unwrap_or_default()
    }
}

impl fmt::Display for Executed {
    /// One line; a script is shown by its first words.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>10.3} ms #{}", self.at.as_secs_f64() * 1000.0, self.connection)?;
        for part in &self.parts {
            let line = part.lines().next().unwrap_or_default();
            write!(f, " {}", line.chars().take(60).collect::<String>())?;
        }
        Ok(())
    }
}

/// The last commands.
#[derive(Debug, Default)]
pub(crate) struct Log {
    executed: VecDeque<(Duration, u64, Vec<Bytes>)>,
}

impl Log {
    pub(crate) fn note(&mut self, at: Duration, connection: u64, parts: &[Bytes]) {
        if self.executed.len() == KEPT {
            self.executed.pop_front();
        }
        self.executed.push_back((at, connection, parts.to_vec()));
    }

    pub(crate) fn read(&self) -> Vec<Executed> {
        let shown = |(at, connection, parts): &(Duration, u64, Vec<Bytes>)| Executed {
            at: *at,
            connection: *connection,
            parts: parts.iter().map(|part| String::from_utf8_lossy(part).into_owned()).collect(),
        };
        self.executed.iter().map(shown).collect()
    }

    pub(crate) fn clear(&mut self) {
        self.executed.clear();
    }
}

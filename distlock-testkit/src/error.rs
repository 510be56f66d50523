//! What can go wrong with a server of the kit. None of it is part of what is being tested.

use std::fmt;
use std::io;

use crate::Missing;

/// Short for a result of the kit.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a server of the kit could not do what it was told.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// There is no server on this machine.
    Missing(Missing),
    /// The system refused something, or a connection broke.
    Io {
        /// What was being done, as in `start the server`.
        doing: String,
        /// What the system said.
        source: io::Error,
    },
    /// The server did not come up; holds the end of its log.
    NotReady {
        /// The last lines that the server wrote.
        log: String,
    },
    /// The server answered a command with this error.
    Refused(String),
    /// The server answered something that is no RESP.
    Protocol(String),
    /// The server has been killed and kept nothing, so it cannot come back with its data.
    NotPersistent,
    /// Several processes did not come to an agreement; holds what each of them said.
    Unsettled(String),
}

impl Error {
    /// For `map_err`: wraps an I/O error with what was being done.
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(missing) => missing.fmt(f),
            Self::Io { doing, source } => write!(f, "could not {doing}: {source}"),
            Self::NotReady { log } => write!(f, "the server did not come up; it said:\n{log}"),
            Self::Refused(text) => write!(f, "the server answered `{text}`"),
            Self::Protocol(what) => write!(f, "the server's answer is no RESP: {what}"),
            Self::Unsettled(said) => write!(f, "the servers did not agree in time; they said:\n{said}"),
            Self::NotPersistent => f.write_str(
                "the server was killed and keeps nothing on disk; build it with `.append_only()`, or use `restart_empty`",
            ),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Missing(missing) => Some(missing),
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl From<Missing> for Error {
    fn from(missing: Missing) -> Self {
        Self::Missing(missing)
    }
}

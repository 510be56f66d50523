//! A connection that speaks just enough RESP for tests which look behind the library's back. Synchronous, no pooling,
//! no resending: what a test sends is what the server gets.

use std::fmt;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::{Error, Result};

/// A server that has not answered for this long is taken to be frozen.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Longest string that is read; anything longer is taken for a broken stream.
const LONGEST: usize = 64 << 20;

/// What a server answered. Bytes that are no UTF-8 are shown as `U+FFFD`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// No such thing.
    Nil,
    /// A whole number.
    Int(i64),
    /// A status or a string.
    Text(String),
    /// A list of answers.
    List(Vec<Reply>),
}

impl Reply {
    /// True for the answer about something that is not there.
    #[must_use]
    pub fn is_nil(&self) -> bool {
        matches!(self, Self::Nil)
    }

    /// The number, if it is one.
    #[must_use]
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            _ => None,
        }
    }

    /// The text, if it is one.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The list, if it is one.
    #[must_use]
    pub fn as_list(&self) -> Option<&[Reply]> {
        match self {
            Self::List(list) => Some(list),
            _ => None,
        }
    }
}

/// One connection to a server, for one command at a time.
pub struct Connection {
    stream: BufReader<TcpStream>,
    local: SocketAddr,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("local", &self.local).finish_non_exhaustive()
    }
}

impl Connection {
    /// Connects to a server on this machine, with a password if it wants one.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when nothing listens there; [`Error::Refused`] for a wrong password.
    pub fn open(port: u16, password: Option<&str>) -> Result<Self> {
        let doing = format!("connect to port {port}");
        let stream = TcpStream::connect(("127.0.0.1", port)).map_err(Error::io(&doing))?;
        let prepare = || {
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(ANSWER_WITHIN))?;
            stream.set_write_timeout(Some(ANSWER_WITHIN))?;
            stream.local_addr()
        };
        let local = prepare().map_err(Error::io(doing))?;
        let mut connection = Self { stream: BufReader::new(stream), local };
        if let Some(password) = password {
            connection.command(&["AUTH", password])?;
        }
        Ok(connection)
    }

    /// The address under which the server knows this connection, as in `CLIENT LIST`.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Sends one command and waits for its answer.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] for an error answer; [`Error::Io`] when the connection breaks or stays silent for 5 s, after
    /// which the connection is of no more use.
    pub fn command(&mut self, parts: &[&str]) -> Result<Reply> {
        self.send(parts)?;
        self.receive()
    }

    /// Sends one command without waiting. For commands that are meant to hang, and for `MONITOR`.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when the connection is broken.
    pub fn send(&mut self, parts: &[&str]) -> Result<()> {
        let mut wire = format!("*{}\r\n", parts.len());
        for part in parts {
            wire.push_str(&format!("${}\r\n{part}\r\n", part.len()));
        }
        let name = parts.first().copied().unwrap_or_default();
        self.stream.get_mut().write_all(wire.as_bytes()).map_err(Error::io(format!("send `{name}`")))
    }

    /// Waits for the next answer.
    ///
    /// # Errors
    ///
    /// As [`command`](Self::command).
    pub fn receive(&mut self) -> Result<Reply> {
        let line = self.line()?;
        let Some(kind) = line.chars().next() else {
            return Err(Error::Protocol("an empty line".to_owned()));
        };
        let rest = &line[kind.len_utf8()..];
        match kind {
            '+' => Ok(Reply::Text(rest.to_owned())),
            '-' => Err(Error::Refused(rest.to_owned())),
            ':' => Ok(Reply::Int(number(rest)?)),
            '$' => self.string(number(rest)?),
            '*' => {
                let length: i64 = number(rest)?;
                if length < 0 {
                    return Ok(Reply::Nil);
                }
                // Not collected at the first error: the rest of the list would be taken for the next answer.
                let parts: Vec<_> = (0..length).map(|_| self.receive()).collect();
                parts.into_iter().collect::<Result<_>>().map(Reply::List)
            }
            _ => Err(Error::Protocol(format!("`{line}`"))),
        }
    }

    /// False once the other end has closed it. Sends nothing.
    pub(crate) fn is_open(&self) -> bool {
        let stream = self.stream.get_ref();
        let peek = || {
            stream.set_nonblocking(true)?;
            let seen = stream.peek(&mut [0]);
            stream.set_nonblocking(false)?;
            seen
        };
        match peek() {
            Ok(bytes) => bytes > 0,
            Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
        }
    }

    /// Sets how long [`receive`](Self::receive) waits.
    pub(crate) fn set_patience(&self, limit: Duration) -> Result<()> {
        let limit = limit.max(Duration::from_millis(1)); // zero would mean for ever
        self.stream.get_ref().set_read_timeout(Some(limit)).map_err(Error::io("set a time limit"))
    }

    fn string(&mut self, length: i64) -> Result<Reply> {
        if length < 0 {
            return Ok(Reply::Nil);
        }
        let length = usize::try_from(length)
            .ok()
            .filter(|length| *length <= LONGEST)
            .ok_or_else(|| Error::Protocol(format!("a string of {length} bytes")))?;
        let mut bytes = vec![0; length + 2];
        self.stream.read_exact(&mut bytes).map_err(Error::io("read an answer"))?;
        Ok(Reply::Text(String::from_utf8_lossy(&bytes[..length]).into_owned()))
    }

    fn line(&mut self) -> Result<String> {
        let mut line = Vec::new();
        self.stream.read_until(b'\n', &mut line).map_err(Error::io("read an answer"))?;
        if line.pop() != Some(b'\n') || line.pop() != Some(b'\r') {
            let closed = std::io::ErrorKind::UnexpectedEof.into();
            return Err(Error::io("read an answer")(closed));
        }
        Ok(String::from_utf8_lossy(&line).into_owned())
    }
}

fn number(text: &str) -> Result<i64> {
    text.parse().map_err(|_| Error::Protocol(format!("`{text}` where a number was due")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    /// What a client reads when the server sends these bytes.
    fn read(bytes: &'static [u8]) -> Result<Reply> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = thread::spawn(move || listener.accept().unwrap().0.write_all(bytes).unwrap());
        let reply = Connection::open(port, None).unwrap().receive();
        server.join().unwrap();
        reply
    }

    #[test]
    fn every_kind_of_answer_is_understood() {
        assert_eq!(read(b"+OK\r\n").unwrap(), Reply::Text("OK".to_owned()));
        assert_eq!(read(b":-7\r\n").unwrap().as_int(), Some(-7));
        assert_eq!(read(b"$5\r\na\r\nbc\r\n").unwrap().as_text(), Some("a\r\nbc"));
        assert!(read(b"$-1\r\n").unwrap().is_nil());
        assert!(read(b"*-1\r\n").unwrap().is_nil());
        assert_eq!(
            read(b"*2\r\n:1\r\n*1\r\n$-1\r\n").unwrap(),
            Reply::List(vec![Reply::Int(1), Reply::List(vec![Reply::Nil])])
        );
    }

    #[test]
    fn an_error_answer_and_a_broken_stream_are_errors() {
        assert!(matches!(read(b"-ERR no\r\n"), Err(Error::Refused(text)) if text == "ERR no"));
        assert!(matches!(read(b"hello\r\n"), Err(Error::Protocol(_))));
        assert!(matches!(read(b":x\r\n"), Err(Error::Protocol(_))));
        assert!(matches!(read(b"$9999999999\r\n"), Err(Error::Protocol(_))));
        assert!(matches!(read(b"$5\r\nab"), Err(Error::Io { .. })));
        assert!(matches!(read(b"+OK"), Err(Error::Io { .. })));
        assert!(matches!(read(b""), Err(Error::Io { .. })));
    }
}

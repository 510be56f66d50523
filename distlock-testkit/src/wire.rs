//! RESP as a server sees it: commands that come in pieces, and answers in either version of the protocol.
//!
//! `resp.rs` is the other side: a client for tests.

use std::borrow::Cow;

use crate::{Error, Reply, Result};

/// Longest string and longest list that are read; anything longer is taken for a broken stream.
const LONGEST: i64 = 64 << 20;

/// A command as it was sent: its name and its arguments.
pub(crate) type Command = Vec<Vec<u8>>;

/// Which version of the protocol a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Resp2,
    Resp3,
}

/// Bytes that have come in and are no whole command yet.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    bytes: Vec<u8>,
}

/// What is wrong with a stream of commands, in the server's own words.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Garbled(pub(crate) &'static str);

impl Inbox {
    /// Where the next bytes go.
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Takes the next whole command. An empty one, which servers pass over, is passed over here too.
    pub(crate) fn next(&mut self) -> Result<Option<Command>, Garbled> {
        loop {
            let Some((command, used)) = self.parse()? else { return Ok(None) };
            self.bytes.drain(..used);
            if !command.is_empty() {
                return Ok(Some(command));
            }
        }
    }

    fn parse(&self) -> Result<Option<(Command, usize)>, Garbled> {
        let Some((line, mut at)) = line(&self.bytes, 0) else { return Ok(None) };
        let Some(count) = line.strip_prefix(b"*") else {
            let words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
            return Ok(Some((words.map(<[u8]>::to_vec).collect(), at)));
        };
        let count = length(count).ok_or(Garbled("invalid multibulk length"))?;
        let mut command = Vec::new();
        for _ in 0..count {
            let Some((line, start)) = self::line(&self.bytes, at) else { return Ok(None) };
            let length = line.strip_prefix(b"$").ok_or(Garbled("expected '$'"))?;
            let length = length_of_string(length).ok_or(Garbled("invalid bulk length"))?;
            let Some(part) = self.bytes.get(start..start + length) else { return Ok(None) };
            at = start + length + 2;
            if self.bytes.len() < at {
                return Ok(None);
            }
            command.push(part.to_vec());
        }
        Ok(Some((command, at)))
    }
}

fn line(bytes: &[u8], from: usize) -> Option<(&[u8], usize)> {
    let rest = &bytes[from..];
    let end = rest.iter().position(|byte| *byte == b'\n')?;
    let line = &rest[..end];
    Some((line.strip_suffix(b"\r").unwrap_or(line), from + end + 1))
}

fn length(digits: &[u8]) -> Option<i64> {
    std::str::from_utf8(digits).ok()?.parse().ok().filter(|length| *length <= LONGEST)
}

fn length_of_string(digits: &[u8]) -> Option<usize> {
    length(digits).and_then(|length| usize::try_from(length).ok())
}

/// How many bytes the first whole answer in `bytes` takes; `None` while it is not whole.
pub(crate) fn answer_length(bytes: &[u8]) -> Result<Option<usize>, Garbled> {
    let mut at = 0;
    // Answers that are still due: a list of three answers is one that turns into three.
    let mut due = 1_i64;
    while due > 0 {
        let Some((line, next)) = line(bytes, at) else { return Ok(None) };
        at = next;
        let (kind, rest) = line.split_first().ok_or(Garbled("an empty line"))?;
        let number = || length(rest).ok_or(Garbled("an answer without a length"));
        due -= 1;
        match kind {
            b'$' | b'=' | b'!' => {
                // `$-1` is a nil and has no content.
                if let Ok(length) = usize::try_from(number()?) {
                    at += length + 2;
                }
            }
            b'*' | b'~' | b'>' => due += number()?.max(0),
            b'%' => due += 2 * number()?.max(0),
            // Attributes stand before the answer that they describe.
            b'|' => due += 2 * number()?.max(0) + 1,
            b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => {}
            _ => return Err(Garbled("an answer of no known kind")),
        }
        if at > bytes.len() {
            return Ok(None);
        }
    }
    Ok(Some(at))
}

/// What a server answers, before it is put into the protocol of the connection.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(not(feature = "embedded"), allow(dead_code))] // the proxy answers with errors alone
pub(crate) enum Answer {
    Status(Cow<'static, str>),
    Error(String),
    Int(i64),
    Bulk(Vec<u8>),
    Double(f64),
    Nil,
    /// The nil of commands that otherwise answer with a list; RESP2 tells it apart.
    NilList,
    List(Vec<Answer>),
    Map(Vec<(Answer, Answer)>),
    /// Members with their scores: pairs in RESP3, one flat list in RESP2.
    Scored(Vec<(Vec<u8>, f64)>),
    /// Comes unasked in RESP3, as a plain list in RESP2.
    Push(Vec<Answer>),
    /// Several answers to one command, as `SUBSCRIBE` gives them.
    Many(Vec<Answer>),
}

#[cfg_attr(not(feature = "embedded"), allow(dead_code))]
impl Answer {
    pub(crate) const OK: Self = Self::Status(Cow::Borrowed("OK"));

    pub(crate) fn bulk(text: impl AsRef<[u8]>) -> Self {
        Self::Bulk(text.as_ref().to_vec())
    }

    pub(crate) fn optional(bytes: Option<Vec<u8>>) -> Self {
        bytes.map_or(Self::Nil, Self::Bulk)
    }

    /// A count of things.
    pub(crate) fn count(count: usize) -> Self {
        Self::Int(i64::try_from(count).unwrap_or(i64::MAX))
    }

    /// Appends the bytes of this answer.
    pub(crate) fn write(&self, protocol: Protocol, out: &mut Vec<u8>) {
        let three = protocol == Protocol::Resp3;
        match self {
            Self::Status(text) => line_of(out, '+', text),
            // A line end inside of an error would be taken for the end of the answer.
            Self::Error(text) => line_of(out, '-', &text.replace(['\r', '\n'], " ")),
            Self::Int(number) => line_of(out, ':', &number.to_string()),
            Self::Bulk(bytes) => {
                line_of(out, '$', &bytes.len().to_string());
                out.extend_from_slice(bytes);
                out.extend_from_slice(b"\r\n");
            }
            Self::Double(number) if three => line_of(out, ',', &double(*number)),
            Self::Double(number) => Self::bulk(double(*number)).write(protocol, out),
            Self::Nil | Self::NilList if three => out.extend_from_slice(b"_\r\n"),
            Self::Nil => out.extend_from_slice(b"$-1\r\n"),
            Self::NilList => out.extend_from_slice(b"*-1\r\n"),
            Self::List(parts) => list(out, '*', parts, protocol),
            Self::Push(parts) => list(out, if three { '>' } else { '*' }, parts, protocol),
            Self::Map(pairs) => {
                let (kind, count) = if three { ('%', pairs.len()) } else { ('*', 2 * pairs.len()) };
                line_of(out, kind, &count.to_string());
                for (key, value) in pairs {
                    key.write(protocol, out);
                    value.write(protocol, out);
                }
            }
            Self::Scored(members) => {
                line_of(out, '*', &(members.len() * if three { 1 } else { 2 }).to_string());
                for (member, score) in members {
                    if three {
                        line_of(out, '*', "2");
                    }
                    Self::bulk(member).write(protocol, out);
                    Self::Double(*score).write(protocol, out);
                }
            }
            Self::Many(answers) => answers.iter().for_each(|answer| answer.write(protocol, out)),
        }
    }

    /// The same answer as the kit's own client would have read it in RESP2.
    pub(crate) fn into_reply(self) -> Result<Reply> {
        let text = |bytes: Vec<u8>| Reply::Text(String::from_utf8_lossy(&bytes).into_owned());
        let list = |parts: Vec<Self>| parts.into_iter().map(Self::into_reply).collect::<Result<_>>().map(Reply::List);
        match self {
            Self::Status(status) => Ok(Reply::Text(status.into_owned())),
            Self::Error(error) => Err(Error::Refused(error.replace(['\r', '\n'], " "))),
            Self::Int(number) => Ok(Reply::Int(number)),
            Self::Bulk(bytes) => Ok(text(bytes)),
            Self::Double(number) => Ok(Reply::Text(double(number))),
            Self::Nil | Self::NilList => Ok(Reply::Nil),
            Self::List(parts) | Self::Push(parts) => list(parts),
            Self::Map(pairs) => list(pairs.into_iter().flat_map(<[Self; 2]>::from).collect()),
            Self::Scored(members) => list(
                members.into_iter().flat_map(|(member, score)| [Self::Bulk(member), Self::Double(score)]).collect(),
            ),
            Self::Many(mut answers) => match answers.len() {
                1 => answers.remove(0).into_reply(),
                _ => list(answers),
            },
        }
    }
}

fn line_of(out: &mut Vec<u8>, kind: char, rest: &str) {
    out.push(kind as u8);
    out.extend_from_slice(rest.as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn list(out: &mut Vec<u8>, kind: char, parts: &[Answer], protocol: Protocol) {
    line_of(out, kind, &parts.len().to_string());
    parts.iter().for_each(|part| part.write(protocol, out));
}

/// A double as servers write it: the shortest text that reads back as the same number.
pub(crate) fn double(number: f64) -> String {
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    if number != 0.0 && (number.abs() >= 1e17 || number.abs() < 1e-4) {
        // `1e+20` there, `1e20` here.
        return format!("{number:e}").replace('e', if number.abs() >= 1.0 { "e+" } else { "e" });
    }
    format!("{number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_in_pieces_is_put_together_and_two_in_one_piece_are_taken_apart() {
        let wire = b"*2\r\n$3\r\nGET\r\n$5\r\na\r\nbc\r\n*0\r\nping me\r\n*1\r\n$4\r\nPING\r\n";
        for cut in 0..wire.len() {
            let mut inbox = Inbox::default();
            let mut seen = Vec::new();
            for piece in [&wire[..cut], &wire[cut..]] {
                inbox.buffer().extend_from_slice(piece);
                while let Some(command) = inbox.next().unwrap() {
                    seen.push(command);
                }
            }
            let expected: [&[&[u8]]; 3] = [&[b"GET", b"a\r\nbc"], &[b"ping", b"me"], &[b"PING"]];
            assert_eq!(seen, expected, "cut at {cut}");
        }
    }

    #[test]
    fn a_broken_command_is_refused_in_the_server_s_words() {
        let mut inbox = Inbox::default();
        inbox.buffer().extend_from_slice(b"*1\r\n:1\r\n");
        assert_eq!(inbox.next(), Err(Garbled("expected '$'")));
        let mut inbox = Inbox::default();
        inbox.buffer().extend_from_slice(b"*x\r\n");
        assert_eq!(inbox.next(), Err(Garbled("invalid multibulk length")));
    }

    #[test]
    fn every_answer_is_as_long_as_it_says() {
        let answers = [
            Answer::OK,
            Answer::Error("ERR a\r\nb".to_owned()),
            Answer::Int(-3),
            Answer::bulk("a\r\nb"),
            Answer::Double(1.5),
            Answer::Nil,
            Answer::NilList,
            Answer::List(vec![Answer::Nil, Answer::List(vec![]), Answer::bulk("")]),
            Answer::Map(vec![(Answer::Int(1), Answer::List(vec![Answer::Int(2)]))]),
            Answer::Scored(vec![(b"a".to_vec(), 1.0), (b"b".to_vec(), 2.5)]),
            Answer::Push(vec![Answer::bulk("message"), Answer::Int(1)]),
        ];
        for answer in answers {
            for protocol in [Protocol::Resp2, Protocol::Resp3] {
                let mut bytes = Vec::new();
                answer.write(protocol, &mut bytes);
                let whole = bytes.len();
                assert!((0..whole).all(|cut| answer_length(&bytes[..cut]) == Ok(None)), "{answer:?}");
                bytes.extend_from_slice(b"+next\r\n");
                assert_eq!(answer_length(&bytes), Ok(Some(whole)), "{answer:?}");
            }
        }
        assert!(answer_length(b"hello\r\n").is_err());
    }
}

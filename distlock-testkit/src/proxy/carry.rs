//! One connection through the proxy: commands one way, answers the other, each with what is to go wrong with it.
//!
//! All of it is one task, so that dropping it drops both streams.

use std::collections::BTreeSet;
use std::future::pending;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::select;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::time::sleep;

use super::Shared;
use crate::Fault;
use crate::wire::{Answer, Command, Garbled, Inbox, Protocol, answer_length};

/// How a connection ends for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Closed,
    Reset,
}

/// What the client gets next, in the order of its commands.
#[derive(Debug)]
enum Slot {
    /// The server's answer.
    Theirs(Way),
    /// The proxy's own answer.
    Ours(Vec<u8>),
    /// No more.
    End(End),
}

/// What becomes of an answer of the server.
#[derive(Clone, Copy, Debug)]
enum Way {
    Pass,
    Late(Duration),
    /// It does not arrive, nor does anything after it.
    Last,
    /// It alone does not arrive, for it answers a copy.
    Swallow,
    /// It does not arrive; the connection ends.
    End,
}

/// Bytes for the server, and what the client is to get for them.
#[derive(Debug)]
struct Sent {
    bytes: Vec<u8>,
    slots: Vec<Slot>,
}

/// Carries one connection until the server, a fault or the proxy ends it.
pub(super) async fn carry(shared: Arc<Shared>, client: TcpStream, mut cuts: watch::Receiver<u64>) -> io::Result<()> {
    let server = TcpStream::connect(shared.upstream).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let (forward, sent) = unbounded_channel();
    let (promise, slots) = unbounded_channel();
    let commands = Commands { shared, inbox: Inbox::default(), forward, channels: BTreeSet::new() };
    let answers = Answers { from_server, to_client, slots, is_mute: false };

    let mut commands = pin!(commands.run(from_client));
    let mut delivery = pin!(deliver(sent, promise, to_server));
    let mut answers = pin!(answers.run());
    let (mut is_open, mut delivers) = (true, true);
    loop {
        select! {
            // A client that has gone is not the end: what it has sent goes on to the server.
            () = &mut commands, if is_open => is_open = false,
            () = &mut delivery, if delivers => delivers = false,
            end = &mut answers => return end,
            _ = cuts.changed() => return Ok(()),
        }
    }
}

/// The way of the commands, until the client has sent its last one.
struct Commands {
    shared: Arc<Shared>,
    inbox: Inbox,
    forward: UnboundedSender<Sent>,
    /// Subscriptions, by what stands before `subscribe` and the channel.
    channels: BTreeSet<(&'static str, Vec<u8>)>,
}

impl Commands {
    async fn run(mut self, mut from_client: OwnedReadHalf) {
        loop {
            match self.inbox.next() {
                Ok(Some(command)) => {
                    if !self.pass(command).await {
                        break;
                    }
                }
                Ok(None) => match from_client.read_buf(self.inbox.buffer()).await {
                    Ok(bytes) if bytes > 0 => {}
                    _ => return,
                },
                Err(Garbled(_)) => {
                    self.send(Vec::new(), vec![Slot::End(End::Closed)]);
                    return;
                }
            }
        }
        // The connection stays open and nobody listens.
        let mut nowhere = [0; 4096];
        while from_client.read(&mut nowhere).await.is_ok_and(|bytes| bytes > 0) {}
    }

    /// Sends one command on its way. False if nothing of this client gets through any more.
    async fn pass(&mut self, command: Command) -> bool {
        let fault = self.shared.rules.decide(&command);
        let bytes = encoded(&command);
        let way = match &fault {
            Some(Fault::CutBefore | Fault::Reset) => {
                let end = if fault == Some(Fault::Reset) { End::Reset } else { End::Closed };
                self.send(Vec::new(), vec![Slot::End(end)]);
                return false;
            }
            Some(Fault::BlackHole) => return false,
            Some(Fault::Refuse(refusal)) => {
                let mut answer = Vec::new();
                Answer::Error(refusal.text().to_owned()).write(Protocol::Resp2, &mut answer);
                self.send(Vec::new(), vec![Slot::Ours(answer)]);
                return true;
            }
            Some(Fault::DelayCommand(by)) => {
                sleep(*by).await;
                Way::Pass
            }
            Some(Fault::DelayReply(by)) => Way::Late(*by),
            Some(Fault::DropReply) => Way::Last,
            Some(Fault::CutAfter) => Way::End,
            _ => Way::Pass,
        };
        let count = self.answers_to(&command);
        let slots = |way| (0..count).map(|_| Slot::Theirs(way)).collect();
        self.send(bytes.clone(), slots(way));
        if let Some(Fault::Duplicate(after)) = fault {
            let copy = Sent { bytes, slots: slots(Way::Swallow) };
            let forward = self.forward.clone();
            if after.is_zero() {
                let _ = forward.send(copy);
            } else {
                // Keeps the way to the server open, though the client may be gone by then.
                tokio::spawn(async move {
                    sleep(after).await;
                    let _ = forward.send(copy);
                });
            }
        }
        true
    }

    fn send(&self, bytes: Vec<u8>, slots: Vec<Slot>) {
        // Without a receiver the connection is at its end.
        let _ = self.forward.send(Sent { bytes, slots });
    }

    /// How many answers the server will give: one for each channel where channels are concerned.
    fn answers_to(&mut self, command: &Command) -> usize {
        let (name, channels) = (&command[0], &command[1..]);
        let is = |word: &str| name.eq_ignore_ascii_case(word.as_bytes());
        for kind in ["", "p", "s"] {
            if is(&format!("{kind}subscribe")) {
                self.channels.extend(channels.iter().map(|channel| (kind, channel.clone())));
                return channels.len();
            }
            if is(&format!("{kind}unsubscribe")) {
                let before = self.channels.len();
                self.channels
                    .retain(|(of, channel)| *of != kind || !(channels.is_empty() || channels.contains(channel)));
                let left = before - self.channels.len();
                // All of them, and without any it is answered as well.
                return if channels.is_empty() { left.max(1) } else { channels.len() };
            }
        }
        1
    }
}

/// Writes to the server what is meant for it. What the client is to get for it is known before the server can answer.
async fn deliver(mut sent: UnboundedReceiver<Sent>, promise: UnboundedSender<Slot>, mut to_server: OwnedWriteHalf) {
    while let Some(Sent { bytes, slots }) = sent.recv().await {
        for slot in slots {
            let _ = promise.send(slot);
        }
        if to_server.write_all(&bytes).await.is_err() {
            // The other direction sees the end of the connection.
            return pending().await;
        }
    }
    // The client has gone: the server reads to the end and closes.
    let _ = to_server.shutdown().await;
}

/// The way of the answers.
struct Answers {
    from_server: OwnedReadHalf,
    to_client: OwnedWriteHalf,
    slots: UnboundedReceiver<Slot>,
    is_mute: bool,
}

impl Answers {
    async fn run(mut self) -> io::Result<()> {
        match self.pass().await? {
            End::Closed => {}
            End::Reset => self.to_client.as_ref().set_zero_linger()?,
        }
        Ok(())
    }

    async fn pass(&mut self) -> io::Result<End> {
        let mut bytes = Vec::new();
        // How the next answer of the server is to be treated, once that is known.
        let mut due = None;
        let mut promises = true;
        loop {
            while let Some(length) = answer_length(&bytes).map_err(garbled)? {
                let rest = bytes.split_off(length);
                let answer = std::mem::replace(&mut bytes, rest);
                if is_push(&answer) {
                    self.write(&answer).await;
                    continue;
                }
                while due.is_none() {
                    match self.slots.recv().await {
                        Some(slot) => match self.fill(slot).await {
                            Ok(way) => due = way,
                            Err(end) => return Ok(end),
                        },
                        None => return Ok(End::Closed), // an answer that nobody asked for
                    }
                }
                match due.take() {
                    Some(Way::Late(by)) => {
                        sleep(by).await;
                        self.write(&answer).await;
                    }
                    Some(Way::Last) => self.is_mute = true,
                    Some(Way::Swallow) => {}
                    Some(Way::End) => return Ok(End::Closed),
                    Some(Way::Pass) | None => self.write(&answer).await,
                }
            }
            select! {
                biased;
                slot = self.slots.recv(), if promises && due.is_none() => match slot {
                    Some(slot) => match self.fill(slot).await {
                        Ok(way) => due = way,
                        Err(end) => return Ok(end),
                    },
                    None => promises = false,
                },
                read = self.from_server.read_buf(&mut bytes) => {
                    if read? == 0 {
                        return Ok(End::Closed);
                    }
                }
            }
        }
    }

    /// Gives the client what is the proxy's to give; else says how the server's answer is to be treated.
    async fn fill(&mut self, slot: Slot) -> Result<Option<Way>, End> {
        match slot {
            Slot::Theirs(way) => Ok(Some(way)),
            Slot::Ours(answer) => {
                self.write(&answer).await;
                Ok(None)
            }
            Slot::End(end) => Err(end),
        }
    }

    async fn write(&mut self, bytes: &[u8]) {
        if !self.is_mute && self.to_client.write_all(bytes).await.is_err() {
            self.is_mute = true; // the client has gone
        }
    }
}

fn garbled(Garbled(what): Garbled) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// True for what comes unasked. Confirmations of subscriptions are pushes too, and answers for all that.
fn is_push(answer: &[u8]) -> bool {
    let mut lines = answer.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let (kind, word) = (lines.next().unwrap_or_default(), lines.nth(1).unwrap_or_default());
    match kind.first() {
        Some(b'>') => !word.ends_with(b"subscribe"),
        // RESP2 does not tell messages from lists.
        Some(b'*') => {
            (kind == b"*3" && (word == b"message" || word == b"smessage")) || (kind == b"*4" && word == b"pmessage")
        }
        _ => false,
    }
}

fn encoded(command: &Command) -> Vec<u8> {
    let mut bytes = Vec::new();
    Answer::List(command.iter().map(Answer::bulk).collect()).write(Protocol::Resp2, &mut bytes);
    bytes
}

//! The state of an embedded server between two commands: keys, scripts, clients. What changes it is in `commands`.

use std::collections::{BTreeMap, BTreeSet};

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::clock::ServerClock;
use super::data::{Bytes, Keyspace};
use super::script::Engine;
use crate::fault::sha1;
use crate::wire::{Answer, Protocol};

/// The client as which tests look at the server directly.
pub(crate) const DIRECT: u64 = 0;

/// Everything a server knows.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) clock: ServerClock,
    pub(crate) data: Keyspace,
    pub(crate) clients: BTreeMap<u64, Client>,
    pub(crate) password: Option<String>,
    /// Sources by their hashes.
    pub(crate) scripts: BTreeMap<String, Bytes>,
    /// Absent while a script runs.
    pub(crate) engine: Option<Engine>,
    /// Told apart from other servers and from its former lives.
    pub(crate) run_id: String,
    /// When the command that is being executed began, in microseconds since the Unix epoch.
    time: i64,
    name: String,
    lives: u64,
    last_client: u64,
}

impl Core {
    pub(crate) fn new(clock: ServerClock, name: String, password: Option<String>) -> Self {
        let mut core = Self {
            clock,
            data: Keyspace::default(),
            clients: BTreeMap::new(),
            password,
            scripts: BTreeMap::new(),
            engine: None,
            run_id: String::new(),
            time: 0,
            name,
            lives: 0,
            last_client: DIRECT,
        };
        core.begin_life();
        core
    }

    /// What a process begins with: no client, no script, an identity of its own. The keys are another matter.
    pub(crate) fn begin_life(&mut self) {
        self.lives += 1;
        self.run_id = sha1(format!("{} {}", self.name, self.lives).as_bytes());
        self.scripts.clear();
        self.engine = Some(Engine::new());
        self.clients.clear();
        let (outbox, _) = mpsc::unbounded_channel();
        let mut direct = Client::new(outbox, watch::channel(false).0);
        direct.logged_in = true;
        self.clients.insert(DIRECT, direct);
    }

    /// Admits a connection and gives it its number, which no later one gets.
    pub(crate) fn admit(&mut self, client: Client) -> u64 {
        self.last_client += 1;
        self.clients.insert(self.last_client, client);
        self.last_client
    }

    /// Freezes the time for one command with all that it calls.
    pub(crate) fn set_now(&mut self, micros: i64) {
        self.time = micros;
        self.data.set_now(micros.div_euclid(1000));
    }

    pub(crate) fn time(&self) -> i64 {
        self.time
    }

    /// Sends to everybody who listens there, and says how many that were.
    pub(crate) fn publish(&mut self, kind: Channels, channel: &Bytes, message: &Bytes) -> usize {
        let word = match kind {
            Channels::Plain => "message",
            Channels::Sharded => "smessage",
        };
        let push = Answer::Push(vec![Answer::bulk(word), Answer::bulk(channel), Answer::bulk(message)]);
        let listeners = self.clients.values().filter(|client| client.channels(kind).contains(channel));
        listeners.map(|client| client.send(&push, None)).count()
    }
}

/// Which of the two worlds of channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Channels {
    Plain,
    Sharded,
}

/// What goes out over a connection next.
#[derive(Debug)]
pub(crate) struct Outgoing {
    /// Not before this, and neither is what follows.
    pub(crate) not_before: Option<Instant>,
    pub(crate) what: Parcel,
}

#[derive(Debug)]
pub(crate) enum Parcel {
    Bytes(Vec<u8>),
    /// The connection ends here.
    End {
        /// By a reset, where the connection knows one.
        reset: bool,
    },
}

/// One connection, as the server knows it.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) protocol: Protocol,
    pub(crate) logged_in: bool,
    pub(crate) name: Bytes,
    /// Ends after the answer to the command that is being executed.
    pub(crate) is_leaving: bool,
    /// Nothing that it is sent gets through any more.
    pub(crate) is_mute: bool,
    /// Nothing that it sends gets through any more.
    pub(crate) is_unheard: bool,
    plain: BTreeSet<Bytes>,
    sharded: BTreeSet<Bytes>,
    outbox: mpsc::UnboundedSender<Outgoing>,
    cut: watch::Sender<bool>,
}

impl Client {
    pub(crate) fn new(outbox: mpsc::UnboundedSender<Outgoing>, cut: watch::Sender<bool>) -> Self {
        Self {
            protocol: Protocol::Resp2,
            logged_in: false,
            name: Bytes::new(),
            is_leaving: false,
            is_mute: false,
            is_unheard: false,
            plain: BTreeSet::new(),
            sharded: BTreeSet::new(),
            outbox,
            cut,
        }
    }

    pub(crate) fn channels(&self, kind: Channels) -> &BTreeSet<Bytes> {
        match kind {
            Channels::Plain => &self.plain,
            Channels::Sharded => &self.sharded,
        }
    }

    pub(crate) fn channels_mut(&mut self, kind: Channels) -> &mut BTreeSet<Bytes> {
        match kind {
            Channels::Plain => &mut self.plain,
            Channels::Sharded => &mut self.sharded,
        }
    }

    pub(crate) fn is_subscribed(&self) -> bool {
        !self.plain.is_empty() || !self.sharded.is_empty()
    }

    /// Puts an answer on its way, unless nothing gets through.
    pub(crate) fn send(&self, answer: &Answer, not_before: Option<Instant>) {
        if self.is_mute {
            return;
        }
        let mut bytes = Vec::new();
        answer.write(self.protocol, &mut bytes);
        // Nobody receives for a connection that has ended meanwhile.
        let _ = self.outbox.send(Outgoing { not_before, what: Parcel::Bytes(bytes) });
    }

    /// Ends the connection after what is already on its way; what it still sends is not heard.
    pub(crate) fn end(&mut self, reset: bool) {
        self.is_unheard = true;
        self.is_mute = true;
        let _ = self.outbox.send(Outgoing { not_before: None, what: Parcel::End { reset } });
    }

    /// Ends the connection at once.
    pub(crate) fn cut(&mut self) {
        self.is_unheard = true;
        self.is_mute = true;
        self.cut.send_replace(true);
    }
}

//! Everything a state consists of, and how a reader is shown it.

use std::fmt;

use crate::few::Few;
use crate::server::{Answer, Burial, CLIENTS, Clients, Entry, Key, Keys, Lock, Server, Token};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Phase {
    #[default]
    Idle,
    /// Acquiring or waiting.
    Waiting,
    Holding,
    Crashed,
}

/// Where a message is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Place {
    /// On its way to the server.
    #[default]
    Up,
    /// Executed; this is on its way back.
    Down(Answer),
    /// Gone without a trace; only the time-out tells.
    Lost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Command {
    Acquire { ticket: u8 },
    Renew,
    Release { bury: bool, withdraw: bool },
}

/// A command under way. It belongs to the client's current attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Sent {
    pub(crate) renew: bool,
    pub(crate) place: Place,
    pub(crate) late: bool,
    /// Ticks since it was sent.
    pub(crate) age: u8,
}

/// A release under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Release {
    pub(crate) attempt: u8,
    pub(crate) bury: bool,
    pub(crate) withdraw: bool,
    /// Never `Down`: its answer matters only by being missing.
    pub(crate) place: Place,
    pub(crate) late: bool,
    pub(crate) age: u8,
}

/// A copy of a command on a connection that its client has given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Stray {
    pub(crate) token: Token,
    pub(crate) command: Command,
    /// Ticks until it can no longer arrive.
    pub(crate) left: u8,
}

impl Default for Stray {
    fn default() -> Self {
        Stray { token: Token::default(), command: Command::Renew, left: 0 }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Push {
    #[default]
    None,
    Arriving,
    Late,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Client {
    pub(crate) phase: Phase,
    /// The keys that its calls take together.
    pub(crate) wants: Keys,
    /// Its calls take what they get at once.
    pub(crate) hurried: bool,
    /// Calls still to be made.
    pub(crate) calls: u8,
    pub(crate) attempt: u8,
    /// The ticket it sends, zero if it knows none.
    pub(crate) ticket: u8,
    /// The first ticket it was told in this call: the place that nobody may take from it.
    pub(crate) first: u8,
    pub(crate) frozen: bool,
    pub(crate) down: bool,
    pub(crate) sent: Option<Sent>,
    pub(crate) releases: Few<Release, 3>,
    /// A push came while an acquisition was under way.
    pub(crate) again: bool,
    /// Ticks until it acquires again by itself.
    pub(crate) timer: u8,
    /// Ticks until its lease ends by its own clock.
    pub(crate) left: u8,
    pub(crate) fence: u8,
    pub(crate) renewed: bool,
    /// This lease was handed on inside the process.
    pub(crate) handed: bool,
    /// A copy of an acquisition of this attempt may still be under way.
    pub(crate) doubt: bool,
    pub(crate) push: Push,
    /// How often somebody behind was granted before it while it was healthy.
    pub(crate) overtaken: u8,
    /// Ticks in a row in which it was healthy and had lost its place in the queue.
    pub(crate) lapsed: u8,
}

impl Client {
    pub(crate) fn valid(&self) -> bool {
        self.phase == Phase::Holding && self.left > 0
    }

    pub(crate) fn healthy_waiter(&self) -> bool {
        self.phase == Phase::Waiting && !self.frozen && !self.down
    }

    /// Nothing of it is under way, or ever will be.
    pub(crate) fn at_rest(&self) -> bool {
        match self.phase {
            Phase::Idle => self.releases.is_empty() && self.push == Push::None,
            Phase::Crashed => true,
            Phase::Waiting | Phase::Holding => false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct World<const KEYS: usize> {
    pub(crate) clients: [Client; CLIENTS],
    pub(crate) server: Server<KEYS>,
    pub(crate) strays: Few<Stray, 6>,
    /// Faults that may still happen.
    pub(crate) faults: u8,
    /// The highest fencing token a body was started with, for each key.
    pub(crate) started: [u8; KEYS],
    /// A body was started with a fencing token that is not the highest.
    pub(crate) disorder: bool,
    /// Somebody was granted before a healthy waiter whose older entry was alive.
    pub(crate) jumped: bool,
    /// Ticks in a row without a valid lease while a healthy waiter was there.
    pub(crate) idle: u8,
    /// How long that may be after the faults that happened.
    pub(crate) allowance: u8,
}

impl<const KEYS: usize> World<KEYS> {
    pub(crate) fn new(faults: u8) -> Self {
        World {
            clients: Default::default(),
            server: Server::default(),
            strays: Few::default(),
            faults,
            started: [0; KEYS],
            disorder: false,
            jumped: false,
            idle: 0,
            allowance: 0,
        }
    }

    pub(crate) fn listening(&self) -> Clients {
        let listens = |client: &Client| client.phase != Phase::Crashed && !client.down;
        (0..CLIENTS).filter(|&i| listens(&self.clients[i])).fold(0, |set, i| set | 1 << i)
    }

    pub(crate) fn locks(&self) -> impl Iterator<Item = &Lock> {
        self.server.keys.iter().filter_map(|key| key.lock.as_ref())
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.server.keys.iter().flat_map(|key| key.queue.iter())
    }

    /// A healthy waiter that was in the queue and is neither there nor granted.
    pub(crate) fn lapsed(&self, client: usize) -> bool {
        let mine = |token: Token| usize::from(token.client) == client;
        let me = &self.clients[client];
        let queued =
            |key: &Key| key.queue.iter().any(|entry| mine(entry.token) && entry.life > 0 && entry.ticket <= me.first);
        let mut keys = self.server.keys.iter().enumerate().filter(|(k, _)| me.wants & 1 << k != 0);
        me.healthy_waiter()
            && me.first != 0
            && keys.any(|(_, key)| !queued(key) && !key.lock.is_some_and(|lock| mine(lock.token)))
    }

    /// An attempt number of this client that nothing refers to.
    pub(crate) fn fresh_attempt(&self, client: usize) -> u8 {
        let used = self.attempts(client);
        (8 - used.leading_zeros()) as u8
    }

    pub(crate) fn attempts(&self, client: usize) -> u8 {
        let me = &self.clients[client];
        let mut used = 0u8;
        if matches!(me.phase, Phase::Waiting | Phase::Holding) {
            used |= 1 << me.attempt;
        }
        for release in me.releases.iter() {
            used |= 1 << release.attempt;
        }
        let tokens = (self.strays.iter().map(|stray| stray.token))
            .chain(self.server.keys.iter().flat_map(|key| key.queue.iter()).map(|entry| entry.token))
            .chain(self.server.gone.iter().map(|burial| burial.token))
            .chain(self.server.keys.iter().filter_map(|key| key.lock).map(|lock| lock.token));
        for token in tokens.filter(|token| usize::from(token.client) == client) {
            used |= 1 << token.attempt;
        }
        used
    }
}

/// For reading a counterexample: what is there, a line each, and nothing else.
impl<const KEYS: usize> fmt::Display for World<KEYS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Server { keys, counter, gone } = &self.server;
        for (k, Key { lock, queue }) in keys.iter().enumerate() {
            if let Some(Lock { token, fence, left }) = lock {
                writeln!(f, "    key {k} lock {token} fence {fence} left {left}")?;
            }
            for Entry { ticket, token, life, pushed } in queue.iter() {
                writeln!(f, "    key {k} entry {token} ticket {ticket} life {life} pushed {pushed}")?;
            }
        }
        for Burial { token, left } in gone.iter() {
            writeln!(f, "    gone {token} left {left}")?;
        }
        for Stray { token, command, left } in self.strays.iter() {
            writeln!(f, "    stray {token} {command:?} left {left}")?;
        }
        for (i, client) in self.clients.iter().enumerate().filter(|(_, client)| **client != Client::default()) {
            write!(f, "    {}: {:?} {} ticket {}", client_name(i), client.phase, client.attempt, client.ticket)?;
            write!(
                f,
                " left {} timer {} push {:?} overtaken {} lapsed {}",
                client.left, client.timer, client.push, client.overtaken, client.lapsed
            )?;
            let flags = [
                (client.frozen, "frozen"),
                (client.down, "down"),
                (client.doubt, "doubt"),
                (client.again, "again"),
                (client.renewed, "renewed"),
            ];
            for (_, name) in flags.iter().filter(|(set, _)| *set) {
                write!(f, " {name}")?;
            }
            writeln!(f)?;
            if let Some(Sent { renew, place, late, age }) = client.sent {
                writeln!(f, "       sent renew {renew} {place:?} late {late} age {age}")?;
            }
            for Release { attempt, bury, place, late, age, .. } in client.releases.iter() {
                writeln!(f, "       release {attempt} bury {bury} {place:?} late {late} age {age}")?;
            }
        }
        let World { faults, idle, allowance, .. } = self;
        writeln!(f, "    faults left {faults} idle {idle} of {allowance} counter {counter}")
    }
}

fn client_name(i: usize) -> char {
    char::from(b'A' + i as u8)
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", client_name(self.client.into()), self.attempt)
    }
}

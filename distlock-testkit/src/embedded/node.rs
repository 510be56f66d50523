//! The life of an embedded server: running, frozen or down, and what becomes of a command in each.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::clock::ServerClock;
use super::commands::execute;
use super::core::{Client, Core, DIRECT, Outgoing};
use super::log::{Executed, Log};
use crate::fault::{Fault, Rules};
use crate::wire::{Answer, Command};

/// One server, shared by its handle and its connections.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) rules: Rules,
    pub(crate) clock: ServerClock,
    started: Instant,
    state: Mutex<State>,
    /// True once the handle is gone.
    gone: watch::Sender<bool>,
}

#[derive(Debug)]
struct State {
    core: Core,
    log: Log,
    is_up: bool,
    is_frozen: bool,
    /// What has come in while frozen, in order of arrival.
    backlog: VecDeque<Arrived>,
}

#[derive(Debug)]
enum Arrived {
    Command { client: u64, command: Command, fault: Option<Fault> },
    Copy { command: Command },
    Closed { client: u64 },
}

/// A connection that was admitted: its number, what goes out over it, and when it is to end at once.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) client: u64,
    pub(crate) outbox: mpsc::UnboundedReceiver<Outgoing>,
    pub(crate) cut: watch::Receiver<bool>,
}

impl Node {
    pub(crate) fn new(name: String, password: Option<String>) -> Self {
        let clock = ServerClock::start();
        let state = State {
            core: Core::new(clock.clone(), name, password),
            log: Log::default(),
            is_up: true,
            is_frozen: false,
            backlog: VecDeque::new(),
        };
        Self {
            rules: Rules::default(),
            clock,
            started: Instant::now(),
            state: Mutex::new(state),
            gone: watch::channel(false).0,
        }
    }

    /// Takes a new connection in, unless the server is down.
    pub(crate) fn admit(&self) -> Option<Admitted> {
        let (sender, outbox) = mpsc::unbounded_channel();
        let (cutter, cut) = watch::channel(false);
        let mut state = self.lock();
        if !state.is_up {
            return None;
        }
        let client = state.core.admit(Client::new(sender, cutter));
        Some(Admitted { client, outbox, cut })
    }

    /// Becomes true when the handle is gone.
    pub(crate) fn gone(&self) -> watch::Receiver<bool> {
        self.gone.subscribe()
    }

    /// A whole command has come in over a connection.
    pub(crate) fn arrived(self: &Arc<Self>, client: u64, command: Command, fault: Option<Fault>) {
        self.take(Arrived::Command { client, command, fault });
    }

    /// A connection was closed by its client. What it sent before is executed all the same.
    pub(crate) fn closed(self: &Arc<Self>, client: u64) {
        self.take(Arrived::Closed { client });
    }

    fn take(self: &Arc<Self>, arrived: Arrived) {
        let mut state = self.lock();
        if state.is_frozen {
            state.backlog.push_back(arrived);
        } else if state.is_up {
            self.handle(&mut state, arrived);
        }
    }

    fn handle(self: &Arc<Self>, state: &mut State, arrived: Arrived) {
        match arrived {
            Arrived::Command { client, command, fault } => self.handle_command(state, client, &command, fault),
            Arrived::Copy { command } => drop(self.execute(state, DIRECT, &command)),
            Arrived::Closed { client } => drop(state.core.clients.remove(&client)),
        }
    }

    fn handle_command(self: &Arc<Self>, state: &mut State, client: u64, command: &Command, fault: Option<Fault>) {
        let Some(session) = state.core.clients.get_mut(&client) else { return };
        if session.is_unheard {
            return;
        }
        match &fault {
            Some(Fault::CutBefore) => return session.end(false),
            Some(Fault::Reset) => return session.end(true),
            Some(Fault::BlackHole) => {
                session.is_unheard = true;
                return;
            }
            Some(Fault::Refuse(refusal)) => return session.send(&Answer::Error(refusal.text().to_owned()), None),
            _ => {}
        }
        let answer = self.execute(state, client, command);
        // Not if the command has ended its own connection in the middle, as by killing it.
        if let Some(session) = state.core.clients.get_mut(&client) {
            match fault {
                Some(Fault::DropReply) => session.is_mute = true,
                Some(Fault::CutAfter) => session.end(false),
                Some(Fault::DelayReply(by)) => session.send(&answer, Some(Instant::now() + by)),
                _ => session.send(&answer, None),
            }
            if session.is_leaving {
                session.end(false);
            }
        }
        if let Some(Fault::Duplicate(after)) = fault {
            let (node, command) = (Arc::clone(self), command.clone());
            if after.is_zero() {
                return self.handle(state, Arrived::Copy { command });
            }
            tokio::spawn(async move {
                tokio::time::sleep(after).await;
                node.take(Arrived::Copy { command });
            });
        }
    }

    fn execute(&self, state: &mut State, client: u64, command: &Command) -> Answer {
        state.log.note(self.started.elapsed(), client, command);
        execute(&mut state.core, client, command)
    }

    /// Executes a command for a test, whatever the state of the server and the faults in force.
    pub(crate) fn direct(&self, command: &Command) -> Answer {
        self.execute(&mut self.lock(), DIRECT, command)
    }

    pub(crate) fn freeze(&self) {
        self.lock().is_frozen = true;
    }

    pub(crate) fn thaw(self: &Arc<Self>) {
        let mut state = self.lock();
        state.is_frozen = false;
        for arrived in std::mem::take(&mut state.backlog) {
            self.handle(&mut state, arrived);
        }
    }

    /// Ends all connections at once; what they had sent and was not executed is lost.
    pub(crate) fn stop(&self) {
        let mut state = self.lock();
        state.is_up = false;
        state.is_frozen = false;
        state.backlog.clear();
        state.core.clients.values_mut().for_each(Client::cut);
        state.core.begin_life();
    }

    pub(crate) fn start(&self, with_data: bool) {
        let mut state = self.lock();
        if !with_data {
            state.core.data.clear();
        }
        state.is_up = true;
    }

    /// Ends for good.
    pub(crate) fn end(&self) {
        self.stop();
        self.gone.send_replace(true);
    }

    pub(crate) fn connections(&self) -> usize {
        self.lock().core.clients.len() - 1
    }

    pub(crate) fn log(&self) -> Vec<Executed> {
        self.lock().log.read()
    }

    pub(crate) fn clear_log(&self) {
        self.lock().log.clear();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

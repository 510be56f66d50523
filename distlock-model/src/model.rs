//! Clients, network and faults around the server, as a model that can be searched.
//!
//! A step is one message, one decision of a client, one fault, or one tick of time. Time stands still while something
//! prompt is due; what a fault has delayed, a frozen client and the end of a body are not prompt.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use stateright::{Model, Property};

use crate::client::MANY;
use crate::fault::of;
use crate::rules::Mutant;
use crate::runs::Run;
use crate::server::{Answer, Ask, CLIENTS, Clients, Entry, Keys, Token};
use crate::world::{Client, Command, Phase, Place, Push, Release, Sent, World};

#[derive(Clone, Debug)]
pub(crate) struct HandOff<const KEYS: usize> {
    pub(crate) run: Run,
    /// The most ticks without a valid lease that were seen.
    pub(crate) most_idle: Arc<AtomicU8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Tick,
    Start(usize),
    Execute(usize),
    ExecuteRelease(usize),
    Answer(usize),
    Pushed(usize),
    Timer(usize),
    TimeOut(usize),
    ReleaseTimeOut(usize),
    DeadlinePassed(usize),
    Reconnect(usize),
    Thaw(usize),
    Finish(usize),
    HandOn(usize),
    Renew(usize),
    Arrive(usize),
    Lose(usize),
    Delay(usize),
    LoseRelease(usize),
    LoseReleaseAnswer(usize),
    DelayRelease(usize),
    LosePush(usize),
    DelayPush(usize),
    Freeze(usize),
    Crash(usize, bool),
    Disconnect(usize, bool),
    Cancel(usize),
}

impl<const KEYS: usize> HandOff<KEYS> {
    /// What happens before time goes on.
    fn prompt(&self, world: &World<KEYS>, i: usize, steps: &mut Vec<Step>) {
        let client = &world.clients[i];
        if client.phase == Phase::Crashed {
            return;
        }
        let release = client.releases.iter().find(|release| release.place == Place::Up);
        if release.is_some_and(|release| !release.late) {
            steps.push(Step::ExecuteRelease(i));
        }
        if let Some(sent) = client.sent {
            // A connection executes in order, and releases were sent before.
            if sent.place == Place::Up && !sent.late && release.is_none() {
                steps.push(Step::Execute(i));
            }
        }
        if client.frozen {
            return;
        }
        if client.down {
            steps.push(Step::Reconnect(i));
            return;
        }
        if let Some(sent) = client.sent {
            if matches!(sent.place, Place::Down(_)) && !sent.late {
                steps.push(Step::Answer(i));
            }
            if sent.age >= self.run.rules.timeout {
                steps.push(Step::TimeOut(i));
            }
        }
        if client.releases.iter().any(|release| release.age >= self.run.rules.timeout) {
            steps.push(Step::ReleaseTimeOut(i));
        }
        if client.push == Push::Arriving {
            steps.push(Step::Pushed(i));
        }
        match client.phase {
            Phase::Waiting if client.sent.is_none() && client.timer == 0 && !self.run.rules.is(Mutant::NoTimer) => {
                steps.push(Step::Timer(i));
            }
            Phase::Holding if client.left == 0 => steps.push(Step::DeadlinePassed(i)),
            _ => {}
        }
    }

    /// What happens now or later.
    fn sometime(&self, world: &World<KEYS>, i: usize, steps: &mut Vec<Step>) {
        let client = &world.clients[i];
        if client.phase == Phase::Crashed {
            return;
        }
        let release = client.releases.iter().find(|release| release.place == Place::Up);
        if release.is_some_and(|release| release.late) {
            steps.push(Step::ExecuteRelease(i));
        }
        if let Some(sent) = client.sent.filter(|sent| sent.late) {
            match sent.place {
                Place::Up if release.is_none() => steps.push(Step::Execute(i)),
                Place::Down(_) if !client.frozen => steps.push(Step::Answer(i)),
                _ => {}
            }
        }
        if client.frozen {
            steps.push(Step::Thaw(i));
            return;
        }
        if client.push == Push::Late {
            steps.push(Step::Pushed(i));
        }
        if client.down {
            return;
        }
        if client.phase == Phase::Idle && client.calls > 0 && client.releases.len() < 2 {
            steps.push(Step::Start(i));
        }
        if client.valid() {
            steps.push(Step::Finish(i));
            if client.sent.is_none() && !client.renewed {
                steps.push(Step::Renew(i));
            }
            if self.run.rules.reserve > 1 && !client.handed && client.calls > 1 && self.reserved(client) {
                steps.push(Step::HandOn(i));
            }
        }
    }

    /// The server executes a command of this token.
    fn execute(&self, world: &mut World<KEYS>, token: Token, command: Command) -> Option<Answer> {
        let listening = world.listening();
        let Client { wants, hurried, .. } = world.clients[usize::from(token.client)];
        match command {
            Command::Acquire { ticket } => {
                let mut rules = self.run.rules;
                if !self.reserved(&world.clients[usize::from(token.client)]) {
                    rules.reserve = 1;
                }
                let ask = Ask { token, wants, ticket, waits: !hurried };
                let held = world.locks().any(|lock| lock.token == token);
                let queued = world.entries().find(|entry| entry.token == token).map(|entry| entry.ticket);
                let (answer, pushed) = world.server.acquire(&rules, ask, listening);
                if matches!(answer, Answer::Granted { .. }) && !held {
                    let first = world.clients[usize::from(token.client)].first;
                    // The place it had, whatever ticket a broken rule makes it send.
                    let known = [first, queued.unwrap_or(0), ticket].into_iter().filter(|&ticket| ticket != 0).min();
                    self.note_overtaking(world, token, wants, known.unwrap_or(u8::MAX));
                }
                deliver_pushes(world, pushed);
                Some(answer)
            }
            Command::Renew => Some(world.server.renew(&self.run.rules, token, wants)),
            Command::Release { bury, withdraw } => {
                let pushed = world.server.release(&self.run.rules, token, wants, (bury, withdraw), listening);
                deliver_pushes(world, pushed);
                None
            }
        }
    }

    fn note_overtaking(&self, world: &mut World<KEYS>, token: Token, wants: Keys, place: u8) {
        let server = world.server;
        for (i, client) in world.clients.iter_mut().enumerate() {
            let older = client.first != 0 && client.first < place && client.wants & wants != 0;
            if i == usize::from(token.client) || !client.healthy_waiter() || !older {
                continue;
            }
            let queued = |entry: &Entry| of(entry, i) && entry.life > 0 && entry.ticket < place;
            let mut keys = server.keys.iter().enumerate().filter(|(k, _)| wants & 1 << k != 0);
            world.jumped |= keys.any(|(_, key)| key.queue.iter().any(queued));
            if self.run.calls == 1 {
                client.overtaken = (client.overtaken + 1).min(MANY);
            }
        }
    }

    fn tick(&self, world: &mut World<KEYS>) {
        let valid = world.clients.iter().any(|client| client.valid());
        let waiting = world.clients.iter().any(|client| client.healthy_waiter());
        world.idle = if waiting && !valid { (world.idle + 1).min(MANY) } else { 0 };
        self.most_idle.fetch_max(world.idle, Ordering::Relaxed);
        for i in 0..self.run.clients {
            let lapsed = world.lapsed(i);
            let client = &mut world.clients[i];
            client.lapsed = if lapsed { (client.lapsed + 1).min(MANY) } else { 0 };
        }
        world.server.tick();
        for stray in world.strays.as_mut() {
            stray.left -= 1;
        }
        world.strays.retain(|stray| stray.left > 0);
        for client in &mut world.clients {
            client.timer = client.timer.saturating_sub(1);
            client.left = client.left.saturating_sub(1);
            if let Some(sent) = &mut client.sent {
                sent.age = (sent.age + 1).min(self.run.rules.ttl.max(self.run.rules.heartbeat));
            }
            for release in client.releases.as_mut() {
                release.age = (release.age + 1).min(self.run.rules.timeout);
            }
        }
    }

    fn apply(&self, world: &mut World<KEYS>, step: Step) {
        match step {
            Step::Tick => self.tick(world),
            Step::Start(i) => {
                world.clients[i].phase = Phase::Waiting;
                // Nothing refers to the attempt that this number stood for while the client was idle.
                world.clients[i].phase = Phase::Idle;
                let attempt = world.fresh_attempt(i);
                world.clients[i].phase = Phase::Waiting;
                world.clients[i].attempt = attempt;
                self.acquire(world, i);
            }
            Step::Execute(i) => {
                let client = world.clients[i];
                let Some(mut sent) = client.sent else { return };
                let token = Token { client: i as u8, attempt: client.attempt };
                let command =
                    if sent.renew { Command::Renew } else { Command::Acquire { ticket: self.ticket(&client) } };
                if let Some(answer) = self.execute(world, token, command) {
                    (sent.place, sent.late) = (Place::Down(answer), false);
                }
                world.clients[i].sent = Some(sent);
            }
            Step::ExecuteRelease(i) => {
                let releases = &mut world.clients[i].releases;
                let Some(at) = releases.iter().position(|release| release.place == Place::Up) else { return };
                let release = releases.remove(at);
                self.execute_release(world, i, release);
            }
            Step::Answer(i) => self.answered(world, i),
            Step::Pushed(i) => self.pushed(world, i),
            Step::Timer(i) => self.acquire(world, i),
            Step::TimeOut(i) => self.timed_out(world, i),
            Step::ReleaseTimeOut(i) => self.reopen(world, i),
            Step::DeadlinePassed(i) => self.deadline_passed(world, i),
            Step::Reconnect(i) => self.reconnect(world, i),
            Step::Thaw(i) => world.clients[i].frozen = false,
            Step::Finish(i) => self.finish(world, i),
            Step::HandOn(i) => {
                let client = world.clients[i];
                let left = if self.run.rules.is(Mutant::FreshDeadline) { self.run.rules.ttl } else { client.left };
                self.hold(world, i, client.fence + 1, left);
                world.clients[i].calls -= 1;
                world.clients[i].handed = true;
            }
            Step::Renew(i) => {
                world.clients[i].sent = Some(Sent { renew: true, place: Place::Up, late: false, age: 0 });
                world.clients[i].renewed = true;
            }
            Step::Arrive(k) => {
                let stray = world.strays.remove(k);
                self.execute(world, stray.token, stray.command);
            }
            fault => self.inject(world, fault),
        }
    }

    pub(crate) fn execute_release(&self, world: &mut World<KEYS>, i: usize, release: Release) {
        let token = Token { client: i as u8, attempt: release.attempt };
        self.execute(world, token, Command::Release { bury: release.bury, withdraw: release.withdraw });
    }
}

fn deliver_pushes<const KEYS: usize>(world: &mut World<KEYS>, pushed: Clients) {
    for i in (0..CLIENTS).filter(|i| pushed & 1 << i != 0) {
        world.clients[i].push = Push::Arriving;
    }
}

impl<const KEYS: usize> Model for HandOff<KEYS> {
    type State = World<KEYS>;
    type Action = Step;

    fn init_states(&self) -> Vec<World<KEYS>> {
        let mut world = World::new(self.run.faults);
        for (i, client) in world.clients[..self.run.clients].iter_mut().enumerate() {
            client.calls = self.run.calls;
            client.wants = self.run.wants[i];
            client.hurried = self.run.hurried & 1 << i != 0;
        }
        vec![world]
    }

    fn actions(&self, world: &World<KEYS>, steps: &mut Vec<Step>) {
        for i in 0..self.run.clients {
            self.prompt(world, i, steps);
        }
        if steps.is_empty() {
            steps.push(Step::Tick);
        }
        for i in 0..self.run.clients {
            self.sometime(world, i, steps);
            self.faults(world, i, steps);
        }
        steps.extend((0..world.strays.len()).map(Step::Arrive));
    }

    fn next_state(&self, world: &World<KEYS>, step: Step) -> Option<World<KEYS>> {
        let mut next = *world;
        if let Some(cost) = self.cost(world, step) {
            next.faults -= 1;
            next.allowance = (next.allowance + cost).min(MANY);
        }
        self.apply(&mut next, step);
        let next = next.canonical(self.run.clients, self.run.rules.reserve);
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ONE, |_, world: &World<KEYS>| {
                let valid =
                    |k: usize| world.clients.iter().filter(move |client| client.valid() && client.wants & 1 << k != 0);
                (0..KEYS).all(|k| valid(k).count() <= 1)
            }),
            Property::always(ORDER, |_, world: &World<KEYS>| !world.disorder),
            Property::always(IDLE, |model: &Self, world: &World<KEYS>| {
                world.idle <= world.allowance.min(model.run.limit)
            }),
            Property::always(JUMP, |_, world: &World<KEYS>| !world.jumped),
            Property::always(LAPSE, |model: &Self, world: &World<KEYS>| {
                let limit = model.run.rules.heartbeat.max(model.run.rules.timeout);
                world.clients.iter().all(|client| client.lapsed <= limit)
            }),
            Property::always(FAIR, |model: &Self, world: &World<KEYS>| {
                let happened = model.run.faults - world.faults;
                world.clients.iter().all(|client| client.overtaken <= happened)
            }),
            Property::always(CLEAN, |_, world: &World<KEYS>| {
                let quiet = world.clients.iter().all(|client| client.at_rest()) && world.strays.is_empty();
                let dead = |token: Token| world.clients[usize::from(token.client)].phase == Phase::Crashed;
                !quiet
                    || world.locks().all(|lock| dead(lock.token))
                        && world.entries().all(|entry| entry.life == 0 || dead(entry.token))
            }),
        ]
    }
}

pub(crate) const ONE: &str = "one valid lease";
pub(crate) const ORDER: &str = "fencing tokens rise";
pub(crate) const IDLE: &str = "not idle for long";
pub(crate) const JUMP: &str = "nobody jumps the queue";
pub(crate) const LAPSE: &str = "a place is soon regained";
pub(crate) const FAIR: &str = "overtaken by faults only";
pub(crate) const CLEAN: &str = "quiet leaves nothing";

//! What goes wrong: where each fault can strike, what it does, and what it may cost.

use crate::model::{HandOff, Step};
use crate::server::{Answer, Entry};
use crate::world::{Client, Phase, Place, Push, Sent, World};

/// Faults that a run may inject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A command, an answer or a push vanishes.
    Lose,
    /// It arrives at any later time.
    Late,
    Freeze,
    Crash,
    /// The connection breaks; what was under way vanishes or arrives later, and is repeated on a new connection.
    Disconnect,
    /// The caller gives up.
    Cancel,
    /// A waiter freezes with nothing under way.
    FreezeWaiter,
    /// A waiter crashes with nothing under way.
    CrashWaiter,
    /// The answer "waiting" arrives late.
    LateWaiting,
    /// A push vanishes.
    LosePush,
    /// An answer to a renewal vanishes.
    LoseRenewal,
}

pub(crate) const ALL: &[Fault] =
    &[Fault::Lose, Fault::Late, Fault::Freeze, Fault::Crash, Fault::Disconnect, Fault::Cancel];

impl<const KEYS: usize> HandOff<KEYS> {
    pub(crate) fn may(&self, world: &World<KEYS>, fault: Fault) -> bool {
        world.faults > 0 && self.run.kinds.contains(&fault)
    }

    pub(crate) fn faults(&self, world: &World<KEYS>, i: usize, steps: &mut Vec<Step>) {
        let client = &world.clients[i];
        if world.faults == 0 || client.phase == Phase::Crashed {
            return;
        }
        if let Some(sent) = client.sent.filter(|sent| sent.place != Place::Lost && !sent.late) {
            let answered = matches!(sent.place, Place::Down(_));
            if self.may(world, Fault::Lose) || (sent.renew && answered && self.may(world, Fault::LoseRenewal)) {
                steps.push(Step::Lose(i));
            }
            if self.may(world, Fault::Late) || (self.answered_waiting(world, i) && self.may(world, Fault::LateWaiting))
            {
                steps.push(Step::Delay(i));
            }
        }
        if client.releases.iter().any(|release| release.place == Place::Up && !release.late) {
            if self.may(world, Fault::Lose) {
                steps.push(Step::LoseRelease(i));
                steps.push(Step::LoseReleaseAnswer(i));
            }
            if self.may(world, Fault::Late) {
                steps.push(Step::DelayRelease(i));
            }
        }
        if client.push == Push::Arriving {
            if self.may(world, Fault::Lose) || self.may(world, Fault::LosePush) {
                steps.push(Step::LosePush(i));
            }
            if self.may(world, Fault::Late) {
                steps.push(Step::DelayPush(i));
            }
        }
        let active = matches!(client.phase, Phase::Waiting | Phase::Holding);
        let resting = self.resting(world, i);
        if active
            && !client.frozen
            && (self.may(world, Fault::Freeze) || (resting && self.may(world, Fault::FreezeWaiter)))
        {
            steps.push(Step::Freeze(i));
        }
        let under_way = client.sent.is_some_and(|sent| sent.place == Place::Up)
            || client.releases.iter().any(|release| release.place == Place::Up);
        if active || !client.releases.is_empty() {
            if self.may(world, Fault::Crash) {
                steps.push(Step::Crash(i, false));
                if under_way {
                    steps.push(Step::Crash(i, true));
                }
            }
            if self.may(world, Fault::Disconnect) && !client.down {
                steps.push(Step::Disconnect(i, false));
                if under_way {
                    steps.push(Step::Disconnect(i, true));
                }
            }
        }
        if resting && self.may(world, Fault::CrashWaiter) {
            steps.push(Step::Crash(i, false));
        }
        if client.phase == Phase::Waiting && !client.frozen && self.may(world, Fault::Cancel) {
            steps.push(Step::Cancel(i));
        }
    }

    /// How many ticks this fault may leave the lock unused while a healthy waiter is there. `None` is no fault.
    pub(crate) fn cost(&self, world: &World<KEYS>, step: Step) -> Option<u8> {
        let rules = &self.run.rules;
        let heartbeat = rules.heartbeat.max(rules.timeout);
        Some(match step {
            // Until the next heartbeat, or until the silence is noticed.
            Step::Lose(_)
            | Step::LoseRelease(_)
            | Step::LoseReleaseAnswer(_)
            | Step::DelayRelease(_)
            | Step::LosePush(_)
            | Step::DelayPush(_) => heartbeat,
            // Arriving late, it can prolong a lock that nobody uses any more.
            Step::Delay(i) if self.answered_waiting(world, i) => heartbeat,
            Step::Delay(_) | Step::Disconnect(_, true) | Step::Freeze(_) => rules.ttl.max(heartbeat),
            // A command can still be under way when its sender dies.
            Step::Crash(i, _) if self.resting(world, i) => {
                let pushed = world.entries().any(|entry| of(entry, i) && entry.pushed);
                // A release serves its own keys only: behind a dead waiter for two, the other key's next one is on
                // its own timer.
                if pushed || KEYS > 1 { heartbeat } else { 0 }
            }
            Step::Crash(..) => 2 * rules.ttl,
            Step::Disconnect(_, false) | Step::Cancel(_) => 0,
            _ => return None,
        })
    }

    /// A waiter with nothing under way.
    pub(crate) fn resting(&self, world: &World<KEYS>, i: usize) -> bool {
        let client = &world.clients[i];
        client.phase == Phase::Waiting
            && client.sent.is_none()
            && client.releases.is_empty()
            && client.push == Push::None
    }

    pub(crate) fn answered_waiting(&self, world: &World<KEYS>, i: usize) -> bool {
        matches!(world.clients[i].sent, Some(Sent { place: Place::Down(Answer::Waiting { .. }), .. }))
    }

    pub(crate) fn disconnect(&self, world: &mut World<KEYS>, i: usize, arrives: bool) {
        if arrives {
            self.leave_behind(world, i);
            self.leave_releases_behind(world, i);
        }
        let client = &mut world.clients[i];
        client.down = true;
        client.push = Push::None;
        if let Some(sent) = &mut client.sent {
            (sent.place, sent.late) = (Place::Lost, false);
        }
        for release in client.releases.as_mut() {
            (release.place, release.late) = (Place::Lost, false);
        }
    }

    pub(crate) fn crash(&self, world: &mut World<KEYS>, i: usize, arrives: bool) {
        self.disconnect(world, i, arrives);
        let Client { wants, hurried, .. } = world.clients[i];
        world.clients[i] = Client { phase: Phase::Crashed, wants, hurried, ..Client::default() };
    }

    pub(crate) fn inject(&self, world: &mut World<KEYS>, fault: Step) {
        match fault {
            Step::Lose(i) => {
                if let Some(sent) = &mut world.clients[i].sent {
                    sent.place = Place::Lost;
                }
            }
            Step::Delay(i) => {
                if let Some(sent) = &mut world.clients[i].sent {
                    sent.late = true;
                }
            }
            Step::LoseRelease(i) | Step::LoseReleaseAnswer(i) | Step::DelayRelease(i) => {
                let releases = &mut world.clients[i].releases;
                let Some(at) = releases.iter().position(|release| release.place == Place::Up) else { return };
                let release = releases[at];
                match fault {
                    Step::DelayRelease(_) => releases.as_mut()[at].late = true,
                    _ => releases.as_mut()[at].place = Place::Lost,
                }
                if fault == Step::LoseReleaseAnswer(i) {
                    self.execute_release(world, i, release);
                }
            }
            Step::LosePush(i) => world.clients[i].push = Push::None,
            Step::DelayPush(i) => world.clients[i].push = Push::Late,
            Step::Freeze(i) => world.clients[i].frozen = true,
            Step::Crash(i, arrives) => self.crash(world, i, arrives),
            Step::Disconnect(i, arrives) => self.disconnect(world, i, arrives),
            Step::Cancel(i) => self.cancel(world, i),
            _ => {}
        }
    }
}

/// An entry of this client.
pub(crate) fn of(entry: &Entry, client: usize) -> bool {
    usize::from(entry.token.client) == client
}

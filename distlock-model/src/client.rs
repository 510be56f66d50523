//! What a client does: the decisions of the library's side of the hand-off.

use crate::model::HandOff;
use crate::rules::Mutant;
use crate::server::{Answer, Token};
use crate::world::{Client, Command, Phase, Place, Push, Release, Sent, Stray, World};

/// Counts beyond this are all the same to every property.
pub(crate) const MANY: u8 = 15;

impl<const KEYS: usize> HandOff<KEYS> {
    pub(crate) fn acquire(&self, world: &mut World<KEYS>, i: usize) {
        let client = &mut world.clients[i];
        client.sent = Some(Sent { renew: false, place: Place::Up, late: false, age: 0 });
        client.again = false;
        client.timer = 0;
    }

    /// Sends what gives this attempt back, and whatever else the client does with it is over.
    pub(crate) fn release(&self, world: &mut World<KEYS>, i: usize, bury: bool, withdraw: bool) {
        let client = &mut world.clients[i];
        let place = if client.down { Place::Lost } else { Place::Up };
        client.releases.push(Release { attempt: client.attempt, bury, withdraw, place, late: false, age: 0 });
    }

    /// A new attempt of the same call keeps its ticket.
    pub(crate) fn try_anew(&self, world: &mut World<KEYS>, i: usize) {
        let attempt = world.fresh_attempt(i);
        world.clients[i].attempt = attempt;
        world.clients[i].doubt = false;
        self.acquire(world, i);
    }

    pub(crate) fn end_call(&self, world: &mut World<KEYS>, i: usize) {
        let client = &mut world.clients[i];
        client.phase = Phase::Idle;
        client.calls -= 1;
        client.attempt = 0;
        (client.ticket, client.first, client.fence) = (0, 0, 0);
        (client.timer, client.left) = (0, 0);
        (client.overtaken, client.lapsed) = (0, 0);
        (client.again, client.renewed, client.handed, client.doubt) = (false, false, false, false);
        client.sent = None;
    }

    pub(crate) fn hold(&self, world: &mut World<KEYS>, i: usize, fence: u8, left: u8) {
        let wants = world.clients[i].wants;
        for (_, started) in world.started.iter_mut().enumerate().filter(|(k, _)| wants & 1 << k != 0) {
            world.disorder |= fence <= *started;
            *started = fence.max(*started);
        }
        world.idle = 0;
        let client = &mut world.clients[i];
        client.phase = Phase::Holding;
        client.fence = fence;
        client.left = left;
        client.renewed = false;
        client.timer = 0;
        client.again = false;
        (client.overtaken, client.lapsed) = (0, 0);
    }

    pub(crate) fn answered(&self, world: &mut World<KEYS>, i: usize) {
        let Some(Sent { place: Place::Down(answer), age, .. }) = world.clients[i].sent.take() else {
            return;
        };
        let rules = &self.run.rules;
        match answer {
            // Only the mutant that starts on a push holds already.
            Answer::Granted { .. } if world.clients[i].phase == Phase::Holding => {}
            Answer::Granted { fence } => {
                let age = if rules.is(Mutant::DeadlineFromReceipt) { 0 } else { age };
                let left = rules.ttl.saturating_sub(age);
                if left == 0 {
                    let doubt = world.clients[i].doubt;
                    self.release(world, i, doubt, false);
                    self.try_anew(world, i);
                } else {
                    self.hold(world, i, fence, left);
                }
            }
            Answer::Dead => self.try_anew(world, i),
            Answer::Busy => {
                if world.clients[i].doubt {
                    self.release(world, i, true, false);
                }
                self.end_call(world, i);
            }
            Answer::Waiting { after, ticket } => {
                let client = &mut world.clients[i];
                if client.ticket == 0 || rules.is(Mutant::TailRequeue) {
                    client.ticket = ticket;
                }
                if client.first == 0 {
                    client.first = ticket;
                }
                let age = if rules.is(Mutant::TimerFromReceipt) { 0 } else { age };
                client.timer = after.min(rules.heartbeat).saturating_sub(age);
                if client.again {
                    self.acquire(world, i);
                }
            }
            Answer::Renewed => {
                let client = &mut world.clients[i];
                if client.left > 0 {
                    client.left = client.left.max(rules.renew_ttl.saturating_sub(age));
                }
            }
            Answer::Absent => {
                if world.clients[i].doubt && !rules.is(Mutant::LossBuriesNothing) {
                    self.release(world, i, true, false);
                }
                self.end_call(world, i);
            }
        }
    }

    pub(crate) fn pushed(&self, world: &mut World<KEYS>, i: usize) {
        world.clients[i].push = Push::None;
        if world.clients[i].phase != Phase::Waiting {
            return;
        }
        if self.run.rules.is(Mutant::PushIsGrant) {
            let fence = world.server.counter + 1;
            if world.clients[i].sent.is_none() {
                self.acquire(world, i);
            }
            let sent = world.clients[i].sent;
            self.hold(world, i, fence, self.run.rules.ttl);
            world.clients[i].sent = sent;
            return;
        }
        match world.clients[i].sent {
            None => self.acquire(world, i),
            Some(_) => world.clients[i].again = !self.run.rules.is(Mutant::ForgetPush),
        }
    }

    pub(crate) fn timed_out(&self, world: &mut World<KEYS>, i: usize) {
        self.leave_behind(world, i);
        self.reopen(world, i);
        match world.clients[i].phase {
            Phase::Waiting => {
                self.release(world, i, true, false);
                self.try_anew(world, i);
            }
            _ => {
                // A renewal; the lease goes on, and so do its tries.
                world.clients[i].sent = Some(Sent { renew: true, place: Place::Up, late: false, age: 0 });
            }
        }
    }

    pub(crate) fn reconnect(&self, world: &mut World<KEYS>, i: usize) {
        let client = &mut world.clients[i];
        client.down = false;
        for release in client.releases.as_mut() {
            (release.place, release.late, release.age) = (Place::Up, false, 0);
        }
        match client.sent {
            Some(sent) => {
                if !sent.renew {
                    client.doubt = true;
                    client.again = false;
                }
                client.sent = Some(Sent { place: Place::Up, late: false, age: 0, ..sent });
            }
            None if client.phase == Phase::Waiting && !self.run.rules.is(Mutant::SilentReconnect) => {
                self.acquire(world, i);
            }
            None => {}
        }
    }

    /// A new connection after a time-out: releases that hang on the old one are sent again.
    pub(crate) fn reopen(&self, world: &mut World<KEYS>, i: usize) {
        self.leave_releases_behind(world, i);
        for release in world.clients[i].releases.as_mut() {
            (release.place, release.late, release.age) = (Place::Up, false, 0);
        }
    }

    /// What is under way to the server becomes a copy that its client knows nothing more about.
    pub(crate) fn leave_behind(&self, world: &mut World<KEYS>, i: usize) {
        let client = world.clients[i];
        if let Some(sent) = client.sent.filter(|sent| sent.place == Place::Up) {
            let command = if sent.renew { Command::Renew } else { Command::Acquire { ticket: self.ticket(&client) } };
            self.stray(world, i, client.attempt, command);
        }
    }

    pub(crate) fn leave_releases_behind(&self, world: &mut World<KEYS>, i: usize) {
        let releases = world.clients[i].releases;
        for release in releases.iter().filter(|release| release.place == Place::Up) {
            let command = Command::Release { bury: release.bury, withdraw: release.withdraw };
            self.stray(world, i, release.attempt, command);
        }
    }

    pub(crate) fn stray(&self, world: &mut World<KEYS>, i: usize, attempt: u8, command: Command) {
        let token = Token { client: i as u8, attempt };
        let stray = Stray { token, command, left: self.run.rules.copies };
        if !world.strays.contains(&stray) {
            world.strays.push(stray);
        }
    }

    pub(crate) fn finish(&self, world: &mut World<KEYS>, i: usize) {
        let client = world.clients[i];
        // A prompt renewal is executed right before the release and changes nothing; a late one may come after it.
        if client.sent.is_some_and(|sent| sent.late) {
            self.leave_behind(world, i);
        }
        self.release(world, i, client.doubt, false);
        self.end_call(world, i);
    }

    pub(crate) fn deadline_passed(&self, world: &mut World<KEYS>, i: usize) {
        if self.run.rules.is(Mutant::SilentAfterDeadline) {
            self.end_call(world, i);
        } else {
            self.finish(world, i);
        }
    }

    pub(crate) fn cancel(&self, world: &mut World<KEYS>, i: usize) {
        let client = world.clients[i];
        self.leave_behind(world, i);
        self.release(world, i, client.doubt || client.sent.is_some(), true);
        self.end_call(world, i);
    }

    /// Whether it asks for fencing tokens to hand on.
    pub(crate) fn reserved(&self, client: &Client) -> bool {
        client.doubt || !self.run.rules.is(Mutant::ReserveOnRepeat)
    }

    pub(crate) fn ticket(&self, client: &Client) -> u8 {
        if self.run.rules.is(Mutant::ForgetTicket) { 0 } else { client.ticket }
    }
}

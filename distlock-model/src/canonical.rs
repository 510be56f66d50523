//! The form in which equal situations are equal states.
//!
//! All times are relative, so that time has no end and the state space has one. Clients are alike, tickets and fencing
//! tokens matter by their order only, and attempts by being different: `World::canonical` forgets the rest.

use crate::server::{Answer, CLIENTS, Token};
use crate::world::{Command, Phase, Place, Sent, World};

impl<const KEYS: usize> World<KEYS> {
    /// The same situation, told in one way only.
    pub(crate) fn canonical(mut self, clients: usize, reserve: u8) -> Self {
        for i in 0..clients {
            let client = &mut self.clients[i];
            if client.phase == Phase::Idle {
                client.attempt = 0;
            }
        }
        self.rank_numbers(reserve);
        self.rank_attempts(clients);
        let mut least = self.sorted();
        for order in orders(clients) {
            least = least.min(self.permuted(order).sorted());
        }
        least
    }

    /// Tickets and fencing tokens become 1, 2, 3 … in the same order. Zero stays: it means none.
    fn rank_numbers(&mut self, reserve: u8) {
        let mut used = 0u64;
        self.numbers(|number| used |= 1 << *number);
        if reserve > 1 {
            // The reserved successors of fencing tokens in use are in use as well.
            let mut note = |fence: u8| used |= 1 << (fence + 1);
            for lock in self.server.keys.iter().filter_map(|key| key.lock) {
                note(lock.fence);
            }
            for client in &self.clients {
                if client.fence > 0 {
                    note(client.fence);
                }
                if let Some(Sent { place: Place::Down(Answer::Granted { fence }), .. }) = client.sent {
                    note(fence);
                }
            }
        }
        used |= 1;
        self.numbers(|number| *number = (used & ((1 << *number) - 1)).count_ones() as u8);
    }

    fn numbers(&mut self, mut each: impl FnMut(&mut u8)) {
        each(&mut self.server.counter);
        self.started.iter_mut().for_each(&mut each);
        for key in &mut self.server.keys {
            if let Some(lock) = &mut key.lock {
                each(&mut lock.fence);
            }
            for entry in key.queue.as_mut() {
                each(&mut entry.ticket);
            }
        }
        for stray in self.strays.as_mut() {
            if let Command::Acquire { ticket } = &mut stray.command {
                each(ticket);
            }
        }
        for client in &mut self.clients {
            each(&mut client.ticket);
            each(&mut client.first);
            each(&mut client.fence);
            match &mut client.sent {
                Some(Sent { place: Place::Down(Answer::Granted { fence }), .. }) => each(fence),
                Some(Sent { place: Place::Down(Answer::Waiting { ticket, .. }), .. }) => each(ticket),
                _ => {}
            }
        }
    }

    fn rank_attempts(&mut self, clients: usize) {
        let used: [u8; CLIENTS] = std::array::from_fn(|i| if i < clients { self.attempts(i) } else { 0 });
        if used.iter().all(|&used| used & used.wrapping_add(1) == 0) {
            return; // Without gaps already.
        }
        self.tokens(|token| {
            let used = used[usize::from(token.client)];
            token.attempt = (used & ((1 << token.attempt) - 1)).count_ones() as u8;
        });
    }

    /// Calls `each` with every token, and puts back what it makes of them.
    fn tokens(&mut self, mut each: impl FnMut(&mut Token)) {
        for key in &mut self.server.keys {
            if let Some(lock) = &mut key.lock {
                each(&mut lock.token);
            }
            for entry in key.queue.as_mut() {
                each(&mut entry.token);
            }
        }
        for burial in self.server.gone.as_mut() {
            each(&mut burial.token);
        }
        for stray in self.strays.as_mut() {
            each(&mut stray.token);
        }
        for (i, client) in self.clients.iter_mut().enumerate() {
            let mut attempt = |attempt: &mut u8| {
                let mut token = Token { client: i as u8, attempt: *attempt };
                each(&mut token);
                *attempt = token.attempt;
            };
            if matches!(client.phase, Phase::Waiting | Phase::Holding) {
                attempt(&mut client.attempt);
            }
            for release in client.releases.as_mut() {
                attempt(&mut release.attempt);
            }
        }
    }

    fn permuted(mut self, order: &[u8; CLIENTS]) -> Self {
        let before = self.clients;
        // Only the tokens outside of the clients name a client.
        let mut moved = self;
        moved.clients = Default::default();
        moved.tokens(|token| token.client = order[usize::from(token.client)]);
        self.server = moved.server;
        self.strays = moved.strays;
        for (i, client) in before.into_iter().enumerate() {
            self.clients[usize::from(order[i])] = client;
        }
        self
    }

    fn sorted(mut self) -> Self {
        self.strays.as_mut().sort_unstable();
        self.server.gone.as_mut().sort_unstable();
        self
    }
}

/// The ways to rename that many clients, without the one that renames none.
fn orders(clients: usize) -> &'static [[u8; CLIENTS]] {
    match clients {
        2 => &[[1, 0, 2]],
        3 => &[[0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]],
        _ => &[],
    }
}

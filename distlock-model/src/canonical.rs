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
        // Clients in ascending order; the rest of the world decides only between those that are equal.
        let ascending = |order: &&[u8; CLIENTS]| {
            let fits = |i: usize, j: usize| order[i] > order[j] || self.clients[i] <= self.clients[j];
            (0..clients).all(|i| (0..clients).all(|j| i == j || fits(i, j)))
        };
        orders(clients).iter().filter(ascending).map(|order| self.permuted(order).sorted()).min().unwrap_or(self)
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

/// The ways to rename that many clients.
fn orders(clients: usize) -> &'static [[u8; CLIENTS]] {
    match clients {
        2 => &[[0, 1, 2], [1, 0, 2]],
        3 => &[[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]],
        _ => &[[0, 1, 2]],
    }
}

#[cfg(test)]
mod tests {
    use crate::server::{Ask, Token};
    use crate::world::{Phase, World};

    /// Two clients, one of which waits behind the other.
    fn world(holder: usize, waiter: usize, first: u8, attempt: u8) -> World<1> {
        let mut world = World::new(0);
        let rules = crate::rules::Rules::default();
        world.server.counter = first;
        for (client, phase) in [(holder, Phase::Holding), (waiter, Phase::Waiting)] {
            let token = Token { client: client as u8, attempt };
            world.server.acquire(&rules, Ask { token, wants: 1, ticket: 0, waits: true }, 0b11);
            world.clients[client].phase = phase;
            world.clients[client].attempt = attempt;
        }
        world.clients[holder].fence = first + 1;
        world.clients[waiter].ticket = first + 2;
        world
    }

    #[test]
    fn names_of_clients_attempts_and_numbers_do_not_matter() {
        let one = world(0, 1, 0, 0).canonical(2, 1);
        assert_eq!(one, world(1, 0, 0, 0).canonical(2, 1));
        assert_eq!(one, world(0, 1, 0, 3).canonical(2, 1));
        assert_eq!(one, world(1, 0, 7, 2).canonical(2, 1));
        assert_eq!(one, one.canonical(2, 1));
    }

    #[test]
    fn the_order_of_numbers_matters() {
        let mut other = world(0, 1, 0, 0);
        other.clients[0].fence = other.clients[1].ticket + 1;
        assert_ne!(other.canonical(2, 1), world(0, 1, 0, 0).canonical(2, 1));
    }

    #[test]
    fn a_reserved_number_is_not_closed_up() {
        let mut world = world(0, 1, 0, 0);
        world.server.counter = 4;
        world.clients[1].ticket = 4;
        world.server.keys[0].queue.as_mut()[0].ticket = 4;
        let canonical = world.canonical(2, 2);
        assert_eq!(canonical.server.counter, canonical.server.keys[0].lock.map_or(0, |lock| lock.fence) + 2);
    }
}

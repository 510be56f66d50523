//! The lock server: its keys with their queues, and the scripts, each of which is one step.
//!
//! The scripts here are the ones to write in Lua; docs/hand-off.md says them in words.

use crate::few::Few;
use crate::rules::{Mutant, Rules};

/// Most clients a run can have.
pub(crate) const CLIENTS: usize = 3;

/// Owner of one attempt: a client and the number of the attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Token {
    pub(crate) client: u8,
    pub(crate) attempt: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Lock {
    pub(crate) token: Token,
    pub(crate) fence: u8,
    /// Ticks until it expires.
    pub(crate) left: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Entry {
    pub(crate) ticket: u8,
    pub(crate) token: Token,
    /// Ticks until it counts as dead.
    pub(crate) life: u8,
    /// A push was sent since its waiter last spoke.
    pub(crate) pushed: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Burial {
    pub(crate) token: Token,
    pub(crate) left: u8,
}

/// What an acquisition asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) token: Token,
    pub(crate) wants: Keys,
    /// Zero if it knows none.
    pub(crate) ticket: u8,
    pub(crate) waits: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Answer {
    Granted {
        fence: u8,
    },
    Dead,
    Busy,
    /// Ask again after so long, unless pushed before.
    Waiting {
        after: u8,
        ticket: u8,
    },
    Renewed,
    Absent,
}

/// Which clients listen to their channel, or were pushed: one bit each.
pub(crate) type Clients = u8;

/// Which keys a call wants: one bit each.
pub(crate) type Keys = u8;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) lock: Option<Lock>,
    /// In order of tickets.
    pub(crate) queue: Few<Entry, 6>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Server<const KEYS: usize> {
    pub(crate) keys: [Key; KEYS],
    /// The last ticket or fencing token given out, whatever the key.
    pub(crate) counter: u8,
    pub(crate) gone: Few<Burial, 5>,
}

impl<const KEYS: usize> Default for Server<KEYS> {
    fn default() -> Self {
        Server { keys: [Key::default(); KEYS], counter: 0, gone: Few::default() }
    }
}

/// Those of `keys` that are wanted.
fn wanted(keys: &mut [Key], wants: Keys) -> impl Iterator<Item = &mut Key> {
    keys.iter_mut().enumerate().filter(move |(i, _)| wants & 1 << i != 0).map(|(_, key)| key)
}

impl<const KEYS: usize> Server<KEYS> {
    /// Takes all the keys, or a place in all their queues.
    pub(crate) fn acquire(&mut self, rules: &Rules, ask: Ask, listening: Clients) -> (Answer, Clients) {
        let Ask { token, wants, ticket, waits } = ask;
        if let Some(fence) = self.again(rules, token, wants) {
            return (Answer::Granted { fence }, 0);
        }
        if self.gone.iter().any(|burial| burial.token == token) {
            return (Answer::Dead, 0);
        }
        let ticket = self.place(token, ticket);
        let limit = if ticket == 0 { u8::MAX } else { ticket };
        let mut pushed = 0;
        let mut mine = true;
        for key in wanted(&mut self.keys, wants) {
            if key.lock.is_none() && rules.serve_last {
                key.clear_head(token, ticket);
            } else if key.lock.is_none() {
                pushed |= key.serve(rules, limit, listening, !rules.is(Mutant::ServeOnlyOnRelease));
            }
            let before = |entry: &Entry| entry.token != token && entry.life > 0 && entry.ticket < limit;
            mine &= key.lock.is_none() && (rules.is(Mutant::Barging) || !key.queue.iter().any(before));
        }
        if mine {
            return (Answer::Granted { fence: self.take(rules, token, wants, ticket) }, pushed);
        }
        let ticket = if waits { self.enqueue(rules, token, wants, ticket) } else { ticket };
        if rules.serve_last {
            let own_turn = |key: &Key| key.queue.first().is_some_and(|head| head.token == token);
            for key in wanted(&mut self.keys, wants).filter(|key| key.lock.is_none() && !own_turn(key)) {
                pushed |= key.serve(rules, u8::MAX, listening, true);
            }
        }
        if !waits {
            return (Answer::Busy, pushed);
        }
        let until = |key: &Key| match key.lock {
            Some(lock) => lock.left,
            None => key.queue.first().filter(|head| head.token != token).map_or(0, |head| head.life),
        };
        let after = wanted(&mut self.keys, wants).map(|key| until(key)).max();
        (Answer::Waiting { after: after.unwrap_or(0).max(1), ticket }, pushed)
    }

    /// A repeat by the holder: the same fencing token, and a full expiry from now.
    fn again(&mut self, rules: &Rules, token: Token, wants: Keys) -> Option<u8> {
        let mut fence = None;
        for key in wanted(&mut self.keys, wants) {
            fence = Some(key.lock.as_ref().filter(|lock| lock.token == token)?.fence);
        }
        for lock in wanted(&mut self.keys, wants).filter_map(|key| key.lock.as_mut()) {
            if !rules.is(Mutant::ResendWithoutExtend) {
                lock.left = lock.left.max(rules.ttl);
            }
        }
        fence
    }

    fn take(&mut self, rules: &Rules, token: Token, wants: Keys, ticket: u8) -> u8 {
        let fence = if rules.is(Mutant::OldFence) && ticket != 0 { ticket } else { self.counter + 1 };
        self.counter = self.counter.max(fence);
        if !rules.is(Mutant::NoReserve) {
            self.counter = self.counter.max(fence + rules.reserve - 1);
        }
        for key in wanted(&mut self.keys, wants) {
            key.leave(rules, token);
            key.lock = Some(Lock { token, fence, left: rules.ttl });
        }
        fence
    }

    /// The ticket that counts: the one sent, or the one of the entry if its answer never arrived.
    fn place(&self, token: Token, ticket: u8) -> u8 {
        let mut entries = self.keys.iter().flat_map(|key| key.queue.iter());
        match entries.find(|entry| entry.token == token) {
            Some(entry) if ticket == 0 => entry.ticket,
            _ => ticket,
        }
    }

    fn enqueue(&mut self, rules: &Rules, token: Token, wants: Keys, ticket: u8) -> u8 {
        let ticket = if ticket == 0 || rules.is(Mutant::TailRequeue) {
            self.counter += 1;
            self.counter
        } else {
            ticket
        };
        for key in wanted(&mut self.keys, wants) {
            // Three copies are enough to break things, and keep the mutant's states few.
            let copies = key.queue.iter().filter(|entry| entry.token == token).count();
            if !rules.is(Mutant::NoDeduplication) || copies > 2 {
                key.leave(rules, token);
            }
            let entry = Entry { ticket, token, life: rules.life, pushed: false };
            let at = key.queue.partition_point(|other| (other.ticket, other.token) < (ticket, token));
            key.queue.insert(at, entry);
        }
        ticket
    }

    /// Release and withdrawal are one: whatever this token has is given back. `withdraw` is only for the mutant.
    pub(crate) fn release(
        &mut self,
        rules: &Rules,
        token: Token,
        wants: Keys,
        (bury, withdraw): (bool, bool),
        listening: Clients,
    ) -> Clients {
        if bury && !rules.is(Mutant::NoBurial) {
            self.gone.retain(|burial| burial.token != token);
            self.gone.push(Burial { token, left: rules.ttl.max(rules.copies) });
        }
        let mut pushed = 0;
        for key in wanted(&mut self.keys, wants) {
            key.leave(rules, token);
            let mine = key.lock.is_some_and(|lock| lock.token == token) || rules.is(Mutant::PlainDelete);
            if mine && !(withdraw && rules.is(Mutant::WithdrawOnlyDequeues)) {
                key.lock = None;
            }
            if key.lock.is_none() {
                pushed |= key.serve(rules, u8::MAX, listening, true);
            }
        }
        pushed
    }

    /// Prolongs the token's own locks. Never shortens, never creates.
    pub(crate) fn renew(&mut self, rules: &Rules, token: Token, wants: Keys) -> Answer {
        let counter = self.counter;
        let mut answer = Answer::Renewed;
        for key in wanted(&mut self.keys, wants) {
            match &mut key.lock {
                Some(lock) if lock.token == token => {
                    let least = if rules.is(Mutant::Shorten) { 0 } else { lock.left };
                    lock.left = least.max(rules.renew_ttl);
                }
                None if rules.is(Mutant::RenewalRecreates) => {
                    key.lock = Some(Lock { token, fence: counter, left: rules.renew_ttl });
                }
                _ => answer = Answer::Absent,
            }
        }
        answer
    }

    pub(crate) fn tick(&mut self) {
        for key in &mut self.keys {
            if let Some(lock) = &mut key.lock {
                lock.left -= 1;
            }
            key.lock = key.lock.filter(|lock| lock.left > 0);
            for entry in key.queue.as_mut() {
                entry.life = entry.life.saturating_sub(1);
            }
        }
        for burial in self.gone.as_mut() {
            burial.left -= 1;
        }
        self.gone.retain(|burial| burial.left > 0);
    }
}

impl Key {
    /// Passes the turn of a free key to the first live waiter before `limit`, and drops the dead and the deaf on the
    /// way. Its turn is short: the next one must not wait for a frozen one.
    fn serve(&mut self, rules: &Rules, limit: u8, listening: Clients, push: bool) -> Clients {
        while let Some(head) = self.queue.as_mut().first_mut().filter(|head| head.ticket < limit) {
            if head.life > 0 && (head.pushed || !push) {
                return 0;
            }
            let client = 1 << head.token.client;
            let deaf = listening & client == 0;
            if head.life == 0 || (deaf && !rules.is(Mutant::NoListenerCheck)) {
                self.queue.remove(0);
                continue;
            }
            head.pushed = true;
            if !rules.is(Mutant::EndlessTurn) {
                head.life = head.life.min(rules.turn);
            }
            return client & listening;
        }
        0
    }

    /// Drops the dead from the head, and what an earlier token of this waiter left there.
    fn clear_head(&mut self, token: Token, ticket: u8) {
        let is_rest = |head: &&Entry| head.life == 0 || (head.token != token && head.ticket == ticket);
        while self.queue.first().filter(is_rest).is_some() {
            self.queue.remove(0);
        }
    }

    fn leave(&mut self, rules: &Rules, token: Token) {
        if let Some(at) = self.queue.iter().position(|entry| entry.token == token) {
            self.queue.remove(at);
            if !rules.is(Mutant::NoDeduplication) {
                self.leave(rules, token);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Token = Token { client: 0, attempt: 0 };
    const B: Token = Token { client: 1, attempt: 0 };
    const C: Token = Token { client: 2, attempt: 0 };
    const ALL_LISTEN: Clients = 0b111;

    fn rules() -> Rules {
        Rules::default()
    }

    fn ask<const KEYS: usize>(server: &mut Server<KEYS>, token: Token, wants: Keys, ticket: u8) -> (Answer, Clients) {
        server.acquire(&rules(), Ask { token, wants, ticket, waits: true }, ALL_LISTEN)
    }

    fn give_back<const KEYS: usize>(
        server: &mut Server<KEYS>,
        token: Token,
        wants: Keys,
        listening: Clients,
    ) -> Clients {
        server.release(&rules(), token, wants, (false, false), listening)
    }

    /// A holds, B and C wait.
    fn queue() -> Server<1> {
        let mut server = Server::default();
        assert_eq!(ask(&mut server, A, 1, 0), (Answer::Granted { fence: 1 }, 0));
        assert_eq!(ask(&mut server, B, 1, 0), (Answer::Waiting { after: 3, ticket: 2 }, 0));
        assert_eq!(ask(&mut server, C, 1, 0), (Answer::Waiting { after: 3, ticket: 3 }, 0));
        server
    }

    #[test]
    fn a_repeat_gets_the_same_fencing_token_and_a_full_expiry() {
        let mut server = queue();
        server.tick();
        assert_eq!(ask(&mut server, A, 1, 0), (Answer::Granted { fence: 1 }, 0));
        assert_eq!(server.keys[0].lock.map(|lock| lock.left), Some(3));
    }

    #[test]
    fn a_release_pushes_the_first_and_a_newcomer_does_not_pass_it() {
        let mut server = queue();
        assert_eq!(give_back(&mut server, A, 1, ALL_LISTEN), 0b010);
        assert!(matches!(ask(&mut server, A, 1, 0).0, Answer::Waiting { after: 1, .. }));
        assert!(matches!(ask(&mut server, C, 1, 3).0, Answer::Waiting { .. }));
        assert_eq!(ask(&mut server, B, 1, 2).0, Answer::Granted { fence: 5 });
    }

    #[test]
    fn a_release_of_another_token_changes_nothing() {
        let mut server = queue();
        let before = server;
        assert_eq!(give_back(&mut server, Token { client: 0, attempt: 1 }, 1, ALL_LISTEN), 0);
        assert_eq!(server, before);
    }

    #[test]
    fn a_waiter_without_listener_is_passed_over_at_once() {
        let mut server = queue();
        assert_eq!(give_back(&mut server, A, 1, 0b101), 0b100);
        assert_eq!(ask(&mut server, C, 1, 3).0, Answer::Granted { fence: 4 });
    }

    #[test]
    fn a_turn_that_nobody_took_ends_and_the_place_is_kept_by_the_ticket() {
        let mut server = queue();
        give_back(&mut server, A, 1, ALL_LISTEN);
        server.tick();
        // A newcomer finds B's turn over, and passes it on to C.
        assert!(matches!(ask(&mut server, A, 1, 0), (Answer::Waiting { after: 1, .. }, 0b100)));
        // B comes back before C took it: its ticket is the older one.
        assert!(matches!(ask(&mut server, B, 1, 2).0, Answer::Granted { .. }));
    }

    #[test]
    fn a_repeat_whose_first_answer_was_lost_finds_its_place() {
        let mut server = queue();
        assert_eq!(ask(&mut server, B, 1, 0).0, Answer::Waiting { after: 3, ticket: 2 });
        give_back(&mut server, A, 1, ALL_LISTEN);
        assert!(matches!(ask(&mut server, B, 1, 0).0, Answer::Granted { .. }));
    }

    #[test]
    fn a_buried_token_is_refused_for_as_long_as_a_copy_can_come() {
        let mut server: Server<1> = Server::default();
        server.release(&rules(), A, 1, (true, false), ALL_LISTEN);
        for _ in 0..rules().ttl.max(rules().copies) {
            assert_eq!(ask(&mut server, A, 1, 0).0, Answer::Dead);
            server.tick();
        }
        assert!(server.gone.is_empty());
    }

    #[test]
    fn a_renewal_neither_creates_nor_shortens() {
        let mut server = queue();
        let short = Rules { renew_ttl: 1, ..rules() };
        assert_eq!(server.renew(&short, A, 1), Answer::Renewed);
        assert_eq!(server.keys[0].lock.map(|lock| lock.left), Some(3));
        assert_eq!(server.renew(&short, B, 1), Answer::Absent);
        give_back(&mut server, A, 1, ALL_LISTEN);
        assert_eq!(server.renew(&short, A, 1), Answer::Absent);
        assert_eq!(server.keys[0].lock, None);
    }

    #[test]
    fn a_call_that_does_not_wait_leaves_no_entry_and_passes_nobody() {
        let mut server = queue();
        let c = Ask { token: Token { client: 2, attempt: 1 }, wants: 1, ticket: 0, waits: false };
        assert_eq!(server.acquire(&rules(), c, ALL_LISTEN), (Answer::Busy, 0));
        server.keys[0].lock = None;
        // It finds the lock free and somebody before it, whom it wakes.
        assert_eq!(server.acquire(&rules(), c, ALL_LISTEN), (Answer::Busy, 0b010));
        assert_eq!(server.keys[0].queue.len(), 2);
    }

    #[test]
    fn two_keys_are_taken_together_or_not_at_all() {
        let mut server: Server<2> = Server::default();
        ask(&mut server, A, 0b01, 0);
        assert_eq!(ask(&mut server, B, 0b11, 0).0, Answer::Waiting { after: 3, ticket: 2 });
        assert_eq!(server.keys[1].lock, None);
        // The second key is free, but B was there first.
        assert!(matches!(ask(&mut server, C, 0b10, 0).0, Answer::Waiting { .. }));
        assert_eq!(give_back(&mut server, A, 0b01, ALL_LISTEN), 0b010);
        assert!(matches!(ask(&mut server, B, 0b11, 2).0, Answer::Granted { .. }));
        assert!(server.keys.iter().all(|key| key.lock.is_some_and(|lock| lock.token == B)));
    }
}

//! What each server may have of each token: what must be given back there, and what is missing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::store::redis::vote::{Missing, Motion, Vote};
use crate::store::{StoreError, Token};

/// That of every token that is not given back yet.
#[derive(Debug, Default)]
pub(super) struct Standings(Mutex<HashMap<Token, Standing>>);

#[derive(Debug)]
struct Standing {
    motion: Arc<Motion>,
    /// The fencing number that a majority has accepted.
    number: u64,
    /// The longest expiry that was sent.
    life: Duration,
    servers: Box<[OnServer]>,
    /// It is being given back, so nothing puts it anywhere any more.
    is_given_back: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct OnServer {
    /// The server said so.
    stands: bool,
    /// How many commands that may put it there are not answered.
    open: u32,
}

/// A server that may have the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MayStand {
    pub(super) server: usize,
    /// A command that puts it there may still be under way.
    pub(super) is_late: bool,
}

/// What there is to be done about a token that is given back.
pub(super) struct GiveBack {
    pub(super) servers: Vec<MayStand>,
    /// How long it may live there.
    pub(super) life: Duration,
    /// It was never granted, and its process stands in the lines.
    pub(super) waits: bool,
}

impl Standings {
    /// Notes that all of so many servers are asked. Before anything leaves.
    pub(super) fn ask(&self, motion: &Arc<Motion>, servers: usize) {
        let mut all = self.lock();
        let standing = all.entry(motion.token).or_insert_with(|| Standing {
            motion: motion.clone(),
            number: 0,
            life: motion.expiry,
            servers: vec![OnServer::default(); servers].into(),
            is_given_back: false,
        });
        standing.motion = motion.clone();
        standing.servers.iter_mut().for_each(|server| server.open += 1);
    }

    /// Takes in what one of them said.
    pub(super) fn answered(&self, token: Token, server: usize, answer: &Result<Vote, StoreError>) {
        self.on(token, server, |server| {
            if answer.as_ref().is_err_and(|error| error.unanswered) {
                return;
            }
            server.open = server.open.saturating_sub(1);
            match answer {
                Ok(Vote::Granted) => server.stands = true,
                // What was the token's own there is deleted then.
                Ok(Vote::Held { .. } | Vote::Dead) => server.stands = false,
                // As before.
                Ok(Vote::Stale { .. } | Vote::Abstains { .. } | Vote::Foreign { .. }) | Err(_) => {}
            }
        });
    }

    /// A majority has accepted this number.
    pub(super) fn granted(&self, token: Token, number: u64) {
        if let Some(standing) = self.lock().get_mut(&token) {
            standing.number = number;
        }
    }

    /// Whether a server has said that it has it.
    pub(super) fn stands(&self, token: Token) -> bool {
        self.lock().get(&token).is_some_and(|standing| standing.servers.iter().any(|server| server.stands))
    }

    /// Whether any server may have it. If none, it is forgotten.
    pub(super) fn may_stand(&self, token: Token) -> bool {
        let mut all = self.lock();
        let may_stand = |standing: &Standing| standing.servers.iter().any(OnServer::may_stand);
        let it_may = all.get(&token).is_some_and(may_stand);
        if !it_may {
            all.remove(&token);
        }
        it_may
    }

    /// Whether some server lacks it.
    pub(super) fn is_missing_somewhere(&self, token: Token) -> bool {
        let all = self.lock();
        all.get(&token)
            .is_some_and(|standing| !standing.is_given_back && standing.servers.iter().any(|server| !server.stands))
    }

    /// A command with this expiry leaves.
    pub(super) fn may_live_for(&self, token: Token, expiry: Duration) {
        if let Some(standing) = self.lock().get_mut(&token) {
            standing.life = standing.life.max(expiry);
        }
    }

    /// What has to be put on a server that a renewal found without the key. `None` if it is given back.
    pub(super) fn heal(&self, token: Token, wire: &str, expiry: Duration, server: usize) -> Option<Missing> {
        let mut all = self.lock();
        let standing = all.get_mut(&token).filter(|standing| !standing.is_given_back)?;
        let place = standing.motion.names.iter().position(|name| &*name.wire == wire)?;
        let on_server = standing.servers.get_mut(server)?;
        on_server.open += 1;
        on_server.stands = false;
        Some(Missing { motion: standing.motion.clone(), place, expiry, number: standing.number })
    }

    /// Takes in what became of that. `None`: not known.
    pub(super) fn healed(&self, token: Token, server: usize, stands: Option<bool>) {
        if let Some(stands) = stands {
            self.on(token, server, |server| {
                server.open = server.open.saturating_sub(1);
                server.stands |= stands;
            });
        }
    }

    /// Where it has to be given back, and how long it may live there. From now on nothing puts it anywhere.
    pub(super) fn give_back(&self, token: Token) -> Option<GiveBack> {
        let mut all = self.lock();
        let standing = all.get_mut(&token)?;
        standing.is_given_back = true;
        let servers = standing.servers.iter().enumerate().filter(|(_, server)| server.may_stand());
        let servers = servers.map(|(server, state)| MayStand { server, is_late: state.open > 0 }).collect();
        let waits = standing.motion.wait.is_some() && standing.number == 0;
        Some(GiveBack { servers, life: standing.life, waits })
    }

    /// The server has none of it any more.
    pub(super) fn gave_back(&self, token: Token, server: usize) {
        self.on(token, server, |server| *server = OnServer::default());
    }

    /// Somebody else answers for what is left.
    pub(super) fn forget(&self, token: Token) {
        self.lock().remove(&token);
    }

    fn on(&self, token: Token, server: usize, change: impl FnOnce(&mut OnServer)) {
        if let Some(server) = self.lock().get_mut(&token).and_then(|standing| standing.servers.get_mut(server)) {
            change(server);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Token, Standing>> {
        // Nothing that can panic runs under the lock, so a poisoned state is still whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OnServer {
    fn may_stand(&self) -> bool {
        self.stands || self.open > 0
    }
}

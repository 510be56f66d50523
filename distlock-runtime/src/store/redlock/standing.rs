//! What each server may have of each token: what must be given back there, and what is missing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::grant::BURIAL;
use crate::store::redis::vote::{Missing, Motion, Vote};
use crate::store::{StoreError, Token};

/// That of every token that is not given back yet.
#[derive(Debug, Default)]
pub(super) struct Standings(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    all: HashMap<Token, Standing>,
    /// At how many those are looked for that no server can have any more.
    look_at: usize,
}

/// As many as need no second look.
const FEW: usize = 64;

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
    /// When no server can have it any more if nothing is heard of it until then: who should have given it back has given up,
    /// or has ended.
    gone_at: Instant,
}

impl Standing {
    fn lives_on(&mut self) {
        let life = self.life.max(BURIAL).saturating_add(BURIAL);
        // A moment that cannot be named does not come.
        self.gone_at = Instant::now().checked_add(life).unwrap_or(self.gone_at);
    }
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
        let mut state = self.lock();
        let state = &mut *state;
        if state.all.len() >= state.look_at.max(FEW) {
            let now = Instant::now();
            state.all.retain(|_, standing| standing.gone_at > now);
            state.look_at = state.all.len().saturating_mul(2);
        }
        let standing = state.all.entry(motion.token).or_insert_with(|| Standing {
            motion: motion.clone(),
            number: 0,
            life: motion.expiry,
            servers: vec![OnServer::default(); servers].into(),
            is_given_back: false,
            gone_at: Instant::now(),
        });
        standing.lives_on();
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
        if let Some(standing) = self.lock().all.get_mut(&token) {
            standing.number = number;
        }
    }

    /// Whether a server has said that it has it.
    pub(super) fn stands(&self, token: Token) -> bool {
        let state = self.lock();
        state.all.get(&token).is_some_and(|standing| standing.servers.iter().any(|server| server.stands))
    }

    /// Whether any server may have it. If none, it is forgotten.
    pub(super) fn may_stand(&self, token: Token) -> bool {
        let mut state = self.lock();
        let may_stand = |standing: &Standing| standing.servers.iter().any(OnServer::may_stand);
        let it_may = state.all.get(&token).is_some_and(may_stand);
        if !it_may {
            state.all.remove(&token);
        }
        it_may
    }

    /// Whether some server lacks it.
    pub(super) fn is_missing_somewhere(&self, token: Token) -> bool {
        let state = self.lock();
        state
            .all
            .get(&token)
            .is_some_and(|standing| !standing.is_given_back && standing.servers.iter().any(|server| !server.stands))
    }

    /// A command with this expiry leaves.
    pub(super) fn may_live_for(&self, token: Token, expiry: Duration) {
        if let Some(standing) = self.lock().all.get_mut(&token) {
            standing.life = standing.life.max(expiry);
            standing.lives_on();
        }
    }

    /// What has to be put on a server that a renewal found without the key. `None` if it is given back.
    pub(super) fn heal(&self, token: Token, wire: &str, expiry: Duration, server: usize) -> Option<Missing> {
        let mut state = self.lock();
        let standing = state.all.get_mut(&token).filter(|standing| !standing.is_given_back)?;
        let place = standing.motion.names.iter().position(|name| &*name.wire == wire)?;
        let on_server = standing.servers.get_mut(server)?;
        // Other keys of the token may stand there.
        on_server.open += 1;
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
        let mut state = self.lock();
        let standing = state.all.get_mut(&token)?;
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
        self.lock().all.remove(&token);
    }

    fn on(&self, token: Token, server: usize, change: impl FnOnce(&mut OnServer)) {
        if let Some(server) = self.lock().all.get_mut(&token).and_then(|standing| standing.servers.get_mut(server)) {
            change(server);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs under the lock, so a poisoned state is still whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OnServer {
    fn may_stand(&self) -> bool {
        self.stands || self.open > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{Keys, Namespace};
    use crate::store::Description;
    use crate::store::redis::vote::Memory;

    fn motion() -> Arc<Motion> {
        let names = Namespace::default().names(&Keys::one("k".to_owned())).unwrap();
        Arc::new(Motion {
            names,
            token: Token::random(),
            expiry: Duration::from_secs(30),
            holder: Description { process: "h/1".into(), function: "f".into() },
            reserve: 1,
            previous: None,
            memory: Memory { epoch: "{distlock}:epoch".into(), quarantine: None },
            waiter: Token::random(),
            wait: None,
        })
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_gives_back_is_forgotten_when_no_server_can_have_it_any_more() {
        let standings = Standings::default();
        let held = motion();
        standings.ask(&held, 3);
        for _ in 0..100 {
            for _ in 0..100 {
                standings.ask(&motion(), 3);
            }
            tokio::time::advance(Duration::from_secs(10)).await;
            standings.may_live_for(held.token, held.expiry);
        }
        // Those of the last two minutes, and as many again before they are looked through.
        assert!(standings.lock().all.len() <= 2 * 12 * 100 + FEW, "{}", standings.lock().all.len());
        assert!(standings.may_stand(held.token));
    }
}

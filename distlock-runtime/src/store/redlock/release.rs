//! Giving a lock back on every server that may have it.

use std::time::Duration;

use super::Redlock;
use super::round::Round;
use super::standing::GiveBack;
use super::tally::quorum;
use crate::grant::BURIAL;
use crate::store::{BoxFuture, Lane, LockStore, Release, Released, StoreError, Token};

impl Redlock {
    pub(super) async fn release(&self, request: &Release, lane: Lane, limit: Duration) -> Result<Released, StoreError> {
        let token = request.token;
        let Some(GiveBack { servers: owing, life, waits }) = self.standings.give_back(token) else {
            return Ok(Released::Absent);
        };
        // Once is enough.
        if waits && !request.waits_on && lane != Lane::Back {
            self.leave_line(request, lane, limit).await;
        }
        let servers = self.servers.len();
        let requests: Vec<Release> = owing
            .iter()
            .map(|owes| {
                let bury = request.bury.or_else(|| owes.is_late.then(|| life.max(BURIAL)));
                Release { bury, ..request.clone() }
            })
            .collect();
        let mut round = Round::new(owing.iter().zip(&requests).map(|(owes, request)| {
            let (server, request) = (self.servers[owes.server].clone(), request.clone());
            let asked: BoxFuture<'static, _> =
                Box::pin(async move { LockStore::release(&*server, &request, lane, limit).await });
            (owes.server, asked)
        }));
        // A server without the token is as good as one that has given it back.
        let mut clean = servers - owing.len();
        let (mut to_come, mut lost, mut is_stolen, mut error) = (owing.len(), 0, false, None);
        // So many servers without the key say that it was lost before.
        let enough = servers - quorum(servers) + 1;
        while clean < quorum(servers) || (lost < enough && lost + to_come >= enough) {
            let Some((server, answer)) = round.next().await else { break };
            to_come -= 1;
            match answer {
                Ok(released) => {
                    self.standings.gave_back(token, server);
                    clean += 1;
                    lost += usize::from(released != Released::Deleted);
                    is_stolen |= released == Released::Stolen;
                }
                Err(failed) => {
                    error.get_or_insert(failed);
                }
            }
        }
        let is_decided = clean >= quorum(servers);
        if is_decided || lane == Lane::Back {
            // Each server is seen to by itself from here on, however many locks it owes an answer for.
            self.leave_to_sweep(token, life, owing.iter().map(|owes| owes.server).zip(requests).collect(), round);
        }
        if !is_decided {
            return Err(error.unwrap_or_else(|| StoreError::unanswered("too few of the lock servers answered")));
        }
        Ok(match (lost >= enough, is_stolen) {
            (false, _) => Released::Deleted,
            (true, true) => Released::Stolen,
            (true, false) => Released::Absent,
        })
    }

    /// Takes the process's name out of the lines. Sent before whatever the process asks next, which may enter it again. Nobody
    /// waits for the answers: a place that stays is forgotten by itself, soon.
    async fn leave_line(&self, request: &Release, lane: Lane, limit: Duration) {
        let request = Release { token: self.waiter, keep: None, bury: None, ..request.clone() };
        let mut round = self.round(|server| {
            let request = request.clone();
            async move { LockStore::release(&*server, &request, lane, limit).await }
        });
        round.send().await;
        tokio::spawn(round.end());
    }

    /// Sees to it that the servers that have not answered yet give the token back as well.
    fn leave_to_sweep(
        &self,
        token: Token,
        life: Duration,
        requests: Vec<(usize, Release)>,
        mut round: Round<Result<Released, StoreError>>,
    ) {
        let (standings, sweeps) = (self.standings.clone(), self.sweeps.clone());
        let finish = async move {
            while let Some((server, answer)) = round.next().await {
                if answer.is_ok() {
                    standings.gave_back(token, server);
                }
            }
            let left = standings.give_back(token).map(|left| left.servers).unwrap_or_default();
            standings.forget(token);
            for (server, request) in requests {
                if left.iter().any(|left| left.server == server) {
                    let life = request.bury.map_or(life, |burial| life.max(burial));
                    sweeps[server].leave(request, life);
                }
            }
        };
        self.spawn_tail(finish);
    }
}

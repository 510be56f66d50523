//! Prolonging leases, and putting those that a majority has prolonged on servers that lack them.

use std::sync::Arc;
use std::time::Duration;

use super::Redlock;
use super::round::Round;
use super::tally::Prolonged;
use crate::store::redis::vote::Missing;
use crate::store::{Lane, LockStore, Renewal, Renewed, StoreError};

impl Redlock {
    pub(super) async fn renew(
        &self,
        batch: &[Renewal],
        lane: Lane,
        limit: Duration,
    ) -> Result<Vec<Renewed>, StoreError> {
        let batch: Arc<[Renewal]> = batch.into();
        for renewal in batch.iter() {
            self.standings.may_live_for(renewal.token, renewal.expiry);
        }
        let mut round = self.round(|server| {
            let batch = batch.clone();
            async move { LockStore::renew(&*server, &batch, lane, limit).await }
        });
        let servers = self.servers.len();
        let mut tally = vec![Prolonged::default(); batch.len()];
        let mut lacking = Vec::new();
        let mut error = None;
        let verdicts = |tally: &[Prolonged]| -> Vec<Renewed> {
            tally.iter().map(|prolonged| prolonged.verdict(servers)).collect()
        };
        while let Some((server, answers)) = round.next().await {
            self.health.note(server, answers.as_ref().err());
            match answers {
                Ok(answers) => {
                    for (prolonged, answer) in tally.iter_mut().zip(&answers) {
                        prolonged.count(*answer);
                    }
                    note_absent(&mut lacking, server, &answers);
                }
                Err(failed) => {
                    error.get_or_insert(failed);
                }
            }
            if !verdicts(&tally).contains(&Renewed::Unknown) {
                break;
            }
        }
        let verdicts = verdicts(&tally);
        self.heal(batch, verdicts.clone(), lacking, round, limit);
        match error {
            Some(error) if verdicts.iter().all(|verdict| *verdict == Renewed::Unknown) => {
                Err(StoreError { unanswered: true, ..error })
            }
            _ => Ok(verdicts),
        }
    }

    /// Puts what was prolonged on servers that lack it, once all have answered.
    fn heal(
        &self,
        batch: Arc<[Renewal]>,
        verdicts: Vec<Renewed>,
        mut lacking: Vec<(usize, usize)>,
        mut round: Round<Result<Vec<Renewed>, StoreError>>,
        limit: Duration,
    ) {
        if !verdicts.contains(&Renewed::Yes) {
            return;
        }
        let (servers, standings, health) = (self.servers.clone(), self.standings.clone(), self.health.clone());
        tokio::spawn(async move {
            while let Some((server, answers)) = round.next().await {
                health.note(server, answers.as_ref().err());
                if let Ok(answers) = answers {
                    note_absent(&mut lacking, server, &answers);
                }
            }
            for (number, server) in servers.iter().enumerate() {
                let missing: Vec<Missing> = lacking
                    .iter()
                    .filter(|(lacks, place)| *lacks == number && verdicts.get(*place) == Some(&Renewed::Yes))
                    .filter_map(|(_, place)| {
                        let renewal = batch.get(*place)?;
                        standings.heal(renewal.token, &renewal.wire, renewal.expiry, number)
                    })
                    .collect();
                if missing.is_empty() {
                    continue;
                }
                let (server, standings) = (server.clone(), standings.clone());
                tokio::spawn(async move {
                    let healed = server.heal(&missing, limit).await;
                    for (place, missing) in missing.iter().enumerate() {
                        let stands = match &healed {
                            Ok(healed) => Some(healed.get(place).copied().unwrap_or(false)),
                            Err(error) => (!error.unanswered).then_some(false),
                        };
                        standings.healed(missing.motion.token, number, stands);
                    }
                });
            }
        });
    }
}

/// Notes which of the keys a server said are not there.
fn note_absent(lacking: &mut Vec<(usize, usize)>, server: usize, answers: &[Renewed]) {
    let absent = answers.iter().enumerate().filter(|(_, answer)| **answer == Renewed::Absent);
    lacking.extend(absent.map(|(place, _)| (server, place)));
}

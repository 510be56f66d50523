//! Telling the servers of a new deployment that there is nothing that they could have forgotten.

use super::Redlock;
use crate::store::redis::vote::Remembers;
use crate::store::{StoreError, StoreErrorKind, no_quarantine};

impl Redlock {
    /// All servers or, if some remember locks and others do not, none: those have lost their memory, and abstain.
    pub(super) async fn bootstrap(&self) -> Result<(), StoreError> {
        if self.memory.quarantine.is_none() {
            return Err(no_quarantine());
        }
        let limit = self.response_timeout;
        let mut round = self.round(|server| {
            let memory = self.memory.clone();
            async move {
                match server.remembers(&memory, limit).await {
                    // The first command after a broken connection fails, the next one finds a new connection.
                    Err(error) if error.kind.is_outage() => server.remembers(&memory, limit).await,
                    answer => answer,
                }
            }
        });
        // All of them: one that is left out would abstain.
        let (mut remember, mut are_new, mut were_in_use) = (0, Vec::new(), Vec::new());
        while let Some((server, answer)) = round.next().await {
            let address = &*self.health.addresses()[server];
            match answer? {
                Remembers::All => remember += 1,
                Remembers::Nothing => are_new.push(address),
                Remembers::PerhapsLess => were_in_use.push(address),
            }
        }
        if !were_in_use.is_empty() {
            were_in_use.sort_unstable();
            return Err(StoreError::new(
                StoreErrorKind::Config,
                format!(
                    "this is no new deployment, for {} took part before the last start, and may have lost the newest locks; each must sit its quarantine out, and votes by itself then",
                    were_in_use.join(", ")
                ),
            ));
        }
        if are_new.is_empty() {
            return Ok(());
        }
        if remember > 0 {
            are_new.sort_unstable();
            return Err(StoreError::new(
                StoreErrorKind::Config,
                format!(
                    "this is no new deployment, for {remember} of the servers remember locks; {} must sit its quarantine out, and votes by itself then",
                    are_new.join(", ")
                ),
            ));
        }
        let mut round = self.round(|server| {
            let memory = self.memory.clone();
            async move { server.bootstrap(&memory, limit).await }
        });
        // One that cannot be told keeps none of the others from it.
        let mut told = Ok(());
        while let Some((_, answer)) = round.next().await {
            told = told.and(answer);
        }
        told
    }
}

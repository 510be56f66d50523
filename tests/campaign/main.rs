//! Sixty-four waiters in eight processes on one key, while processes are killed and stopped, connections and scripts are
//! lost and the server restarts. A seed decides what happens.
//!
//! `scripts/campaign-waiting` runs a longer one; the variables below say which.

mod dice;
mod driver;
mod judge;
mod worker;

use std::time::Duration;

use distlock_testkit::{Server, server_or_skip};

use crate::driver::Campaign;

/// How many seconds there is trouble.
const SECONDS: &str = "DISTLOCK_CAMPAIGN_SECONDS";

/// Decides what happens; else the time of day does.
const SEED: &str = "DISTLOCK_SEED";

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("`{name}` is no number: `{text}`")))
}

#[test]
fn whatever_happens_to_the_others_nobody_waits_much_longer_than_for_its_turn() {
    // What it has written survives a kill: without that, leases may overlap after a restart.
    let server = server_or_skip!(Server::builder().append_only());
    let seed = number(SEED).unwrap_or_else(|| distlock_testkit::Moment::now().as_nanos());
    println!("seed {seed}; repeat it with `{SEED}={seed} scripts/campaign-waiting`");
    let story = Campaign::new(&server, seed).run(Duration::from_secs(number(SECONDS).unwrap_or(10)));
    judge::judge(&server, &story);
}

//! A worker: sends its buyers into the shop, all at once, and tells what became of each.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use distlock::LockManager;
use tokio::task::JoinSet;

use crate::claim::{Buyer, Claim, claim, claim_without_lock};
use crate::news::News;
use crate::shop::Shop;
use crate::{Result, progress};

/// What a worker is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Work {
    /// As in `worker-1`.
    pub(crate) name: String,
    pub(crate) shop: PathBuf,
    pub(crate) campaign: String,
    pub(crate) buyers: usize,
    pub(crate) think: Duration,
    pub(crate) no_lock: bool,
}

/// A worker that is a process: finds the lock server by `DISTLOCK_URL` and tells its news on standard output.
pub(crate) async fn main(work: Work) -> Result<()> {
    let locks = LockManager::from_env().await?;
    distlock::init(locks.clone())?;
    send_buyers(&work, |news| progress::say(&news.to_string())).await;
    locks.shutdown(Duration::from_secs(2)).await;
    Ok(())
}

/// Lets all buyers of a worker claim at once, each in a task of its own.
pub(crate) async fn send_buyers(work: &Work, tell: impl Fn(News)) {
    let shop = match Shop::enter(&work.shop, &work.name, &work.campaign, work.think) {
        Ok(shop) => Arc::new(shop),
        Err(error) => return tell(News::Failed { buyer: work.name.clone(), why: error.to_string() }),
    };
    let mut buyers = JoinSet::new();
    for number in 1..=work.buyers {
        let buyer = Buyer { name: format!("{}/buyer-{number}", work.name), came: Instant::now() };
        buyers.spawn(buy(work.clone(), buyer, Arc::clone(&shop)));
    }
    while let Some(news) = buyers.join_next().await {
        tell(news.unwrap_or_else(|error| News::Failed { buyer: work.name.clone(), why: error.to_string() }));
    }
}

/// One buyer's way through the shop.
async fn buy(work: Work, buyer: Buyer, shop: Arc<Shop>) -> News {
    let claimed = if work.no_lock {
        claim_without_lock(&work.campaign, &buyer, &shop).await
    } else {
        claim(&work.campaign, &buyer, &shop).await
    };
    let buyer = buyer.name;
    match claimed {
        Ok(Claim::Issued { coupon, token, waited }) => News::Issued { coupon, token, waited, buyer },
        Ok(Claim::SoldOut) => News::SoldOut { buyer },
        Err(error) => News::Failed { buyer, why: error.to_string() },
    }
}

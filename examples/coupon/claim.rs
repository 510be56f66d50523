//! One buyer claims one coupon: the function that must not run twice at once, with the lock and without it.

use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use distlock::{Lease, LockError, distributed_lock};

use crate::shop::Shop;

/// Somebody who wants a coupon.
pub(crate) struct Buyer {
    /// As in `worker-1/buyer-7`.
    pub(crate) name: String,
    /// When the buyer began to wait.
    pub(crate) came: Instant,
}

/// What became of a claim.
pub(crate) enum Claim {
    /// The buyer has a coupon.
    Issued {
        /// Which one, from 1.
        coupon: usize,
        /// The fencing token under which it was issued; zero without a lock.
        token: u64,
        /// How long the buyer waited for the lock.
        waited: Duration,
    },
    /// There was none left.
    SoldOut,
}

/// Claims a coupon. However many processes call this, one body runs at a time for each campaign.
#[distributed_lock(key = "coupon:{campaign}", ttl = "2s", wait = "60s", lease = lease)]
pub(crate) async fn claim(campaign: &str, buyer: &Buyer, shop: &Shop) -> Result<Claim, ClaimError> {
    sell(buyer, shop, Some(lease)).await
}

/// The same without the attribute.
pub(crate) async fn claim_without_lock(_campaign: &str, buyer: &Buyer, shop: &Shop) -> Result<Claim, ClaimError> {
    sell(buyer, shop, None).await
}

/// Read, think, write: between the read and the write, the shop is on its own.
async fn sell(buyer: &Buyer, shop: &Shop, lease: Option<&Lease>) -> Result<Claim, ClaimError> {
    let waited = buyer.came.elapsed();
    let holding = shop.note_entry(lease)?; // for the audit; notes the end when it is dropped

    let mut stock = shop.read().await?;
    if stock.left == 0 {
        return Ok(Claim::SoldOut);
    }
    tokio::time::sleep(shop.think).await;
    if let Some(lease) = lease {
        lease.ensure_held()?; // the last look before what cannot be undone
        holding.extend(lease.remaining())?;
    }
    let coupon = stock.sell_to(&buyer.name);
    shop.write(&stock).await?;

    Ok(Claim::Issued { coupon, token: lease.map_or(0, Lease::fencing_token), waited })
}

/// Why a claim did not come to an answer.
#[derive(Debug)]
pub(crate) enum ClaimError {
    /// The lock could not be had, or was lost.
    Lock(LockError),
    /// The shop's files could not be read or written.
    Shop(io::Error),
}

/// All that the attribute asks of an error type.
impl From<LockError> for ClaimError {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

impl From<io::Error> for ClaimError {
    fn from(error: io::Error) -> Self {
        Self::Shop(error)
    }
}

impl fmt::Display for ClaimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock(error) => error.fmt(f),
            Self::Shop(error) => write!(f, "the shop's file: {error}"),
        }
    }
}

//! Annotated functions of every kind in a crate that denies every lint it can. `cargo clippy` is the test.
#![deny(warnings, missing_docs, unreachable_pub, missing_debug_implementations, unused_qualifications)]
#![deny(
    unused_crate_dependencies,
    single_use_lifetimes,
    let_underscore_drop,
    unused_lifetimes,
    variant_size_differences
)]
#![deny(clippy::all, clippy::pedantic, clippy::nursery, clippy::cargo)]
#![deny(
    clippy::shadow_unrelated,
    clippy::shadow_reuse,
    clippy::shadow_same,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::unreachable,
    clippy::indexing_slicing,
    clippy::absolute_paths,
    clippy::let_underscore_untyped,
    clippy::let_underscore_must_use,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    clippy::missing_docs_in_private_items,
    clippy::default_numeric_fallback,
    clippy::pattern_type_mismatch,
    clippy::exhaustive_structs,
    clippy::arithmetic_side_effects
)]
#![allow(clippy::cargo_common_metadata, clippy::multiple_crate_versions, reason = "they are about the workspace")]
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::Duration;

use distlock::{KeySegment, Lease, LockError, LockKey, LockManager, distributed_lock, lock_set};
use tokio::task::yield_now;

#[cfg(test)]
use tokio as _;

/// A constant of the crate.
pub const TTL: Duration = Duration::from_secs(5);

/// Gives nothing and never awaits.
#[distributed_lock(key = "nightly", on_busy = skip, on_error = skip, on_lost = finish)]
pub async fn tick() {}

/// Gives an argument back.
///
/// # Errors
///
/// Those of the lock.
#[distributed_lock(key = "a:{id}:{name:hash}:{id:08x}", ttl = TTL, wait = forever, lease = lease)]
pub async fn claim(id: u64, name: &str, mut list: Vec<u64>) -> Result<Vec<u64>, LockError> {
    yield_now().await;
    lease.ensure_held()?;
    list.push(id);
    Ok(list)
}

/// Has an answer for everything.
#[distributed_lock(
    key = "a:{id}",
    ttl = "5s",
    on_busy = |busy| { yield_now().await; if busy.key().is_empty() { return 1; } name.len() },
    on_error = |err| name.len().max(err.to_string().len()),
    on_lost = |lost| lost.key().len()
)]
pub async fn closures(id: u64, name: String) -> usize {
    const LOCAL: usize = 1;
    yield_now().await;
    name.len().max(LOCAL)
}

/// Can be left out for either reason.
///
/// # Errors
///
/// Those of the lock.
#[distributed_lock(key = "b:{id}", on_busy = skip, on_error = skip)]
pub async fn skipped(id: u64) -> Result<Option<u64>, LockError> {
    yield_now().await;
    Ok(Some(id))
}

/// Is on several things, and keeps them.
///
/// # Errors
///
/// Those of the lock.
#[distributed_lock(keys = ["a:{id}", "b:{name}"], label = "both", after_ok = keep("1h"), after_err = keep(TTL), lease = lease)]
pub async fn several(id: u64, name: &str) -> Result<u64, LockError> {
    yield_now().await;
    lease.ensure_held()?;
    Ok(id)
}

/// Is on each thing of a list.
///
/// # Errors
///
/// What is made of those of the lock.
#[distributed_lock(keys(for &(id, _) in &list => "a:{id}"), map_err = text)]
pub async fn each(list: Vec<(u64, u8)>, names: &[String]) -> Result<Vec<(u64, u8)>, String> {
    yield_now().await;
    if names.is_empty() { Err(String::new()) } else { Ok(list) }
}

/// Is on each thing of a list that it borrows.
///
/// # Errors
///
/// Those of the lock.
#[distributed_lock(keys(for name in names => "a:{name}"))]
pub async fn each_of(names: &[String]) -> Result<usize, LockError> {
    yield_now().await;
    Ok(names.len())
}

/// Is on what it is told.
///
/// # Errors
///
/// Those of the lock.
#[distributed_lock(key = key, label = "computed", after_ok = keep(time), allow(literal_arg_name, open_transaction))]
pub async fn computed(key: String, time: Duration) -> Result<String, LockError> {
    yield_now().await;
    Ok(key)
}

/// Makes a text of an error.
#[expect(clippy::needless_pass_by_value, reason = "it is given one")]
fn text(err: LockError) -> String {
    err.to_string()
}

/// A shop.
#[derive(Debug)]
#[non_exhaustive]
pub struct Shop {
    /// What it locks with.
    locks: Arc<LockManager>,
    /// Its number.
    id: u32,
}

impl Shop {
    /// How long it waits.
    const WAIT: Duration = Duration::from_millis(1);

    /// A shop with a number.
    #[must_use]
    pub fn new(id: u32) -> Self {
        Self { locks: Arc::new(LockManager::in_memory()), id }
    }

    /// Its number.
    ///
    /// # Errors
    ///
    /// Those of the lock.
    #[distributed_lock(key = "{self.id}", manager = self.locks, wait = Self::WAIT)]
    pub async fn number(&self, (first, _): (u32, u32), _unused: Arc<str>) -> Result<u32, LockError> {
        if first == 0 {
            return Ok(0);
        }
        Ok(self.id)
    }
}

/// What can be saved.
#[async_trait::async_trait]
pub trait Store {
    /// Saves.
    ///
    /// # Errors
    ///
    /// Those of the lock.
    async fn save(&self, id: u32) -> Result<u32, LockError>;
}

#[async_trait::async_trait]
impl Store for Shop {
    #[distributed_lock(key = "{self.id}:{id}", manager = self.locks)]
    async fn save(&self, id: u32) -> Result<u32, LockError> {
        yield_now().await;
        Ok(id)
    }
}

lock_set! {
    /// The locks of this crate.
    pub Locks { namespace = "strict", ttl = "5s" }
}

/// Where a cart is.
#[derive(Clone, Copy, Debug, KeySegment, PartialEq, Eq)]
#[non_exhaustive]
pub enum Region {
    /// Europe.
    Eu,
    /// America.
    Us,
}

/// The number of a cart.
#[derive(Clone, Copy, Debug, KeySegment, PartialEq, Eq)]
#[non_exhaustive]
pub struct CartId(u64);

/// The lock on a cart.
#[derive(Debug, LockKey)]
#[lock(key = "cart:{region}:{id:08}", set = Locks, wait = "1s", max_hold = TTL)]
#[non_exhaustive]
pub struct CartLock {
    /// Where it is.
    pub region: Region,
    /// Its number.
    pub id: CartId,
}

/// The lock on a mail address.
#[derive(Debug, LockKey)]
#[lock(key = "mail:{owner}:{address:hash}", set = Locks, ttl = TTL, witness = MailHeld)]
pub(crate) struct MailLock<'a, T> {
    /// The address.
    address: &'a str,
    /// Whose.
    owner: T,
}

/// Cannot be called without the lock.
pub async fn checked(held: &Lease<CartLock>) -> u64 {
    yield_now().await;
    held.fencing_token()
}

/// Locks two declarations.
///
/// # Errors
///
/// Those of the lock.
#[distributed_lock([CartLock { region, id: CartId(id) }, MailLock { address, owner: id }], ttl = "5s", lease = lease)]
pub async fn typed(region: Region, id: u64, address: &str) -> Result<u64, LockError> {
    let mail = lease.part::<MailHeld>();
    mail.ensure_held()?;
    Ok(checked(lease.part::<CartLock>()).await)
}

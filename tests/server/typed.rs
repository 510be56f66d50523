//! Typed locks on a server: where their keys are, and that each part has its own fencing token.

use std::sync::Arc;

use distlock::{Lease, LockError, LockKey, LockManager, distributed_lock};
use distlock_testkit::server_or_skip;

use crate::support::{exists, manager};

distlock::lock_set! { Billing { namespace = "billing", ttl = "5s" } }

#[derive(LockKey)]
#[lock(key = "invoice:{id}", set = Billing)]
struct InvoiceLock {
    id: u64,
}

#[derive(LockKey)]
#[lock(key = "typed-shop:{name}", ttl = "5s", witness = ShopHeld)]
struct ShopLock<'a> {
    name: &'a str,
}

async fn booked(held: &Lease<InvoiceLock>) -> Result<u64, LockError> {
    held.ensure_held()?;
    Ok(held.fencing_token())
}

#[distributed_lock([InvoiceLock { id }, ShopLock { name: &name }], manager = locks, lease = lease)]
async fn book(
    locks: &LockManager,
    server: &distlock_testkit::Server,
    id: u64,
    name: Arc<str>,
) -> Result<[u64; 2], LockError> {
    assert!(exists(server, "billing:invoice:7") && exists(server, "distlock:typed-shop:a"));
    let shop: &Lease<ShopHeld> = lease.part::<ShopHeld>();
    Ok([booked(lease.part::<InvoiceLock>()).await?, shop.fencing_token()])
}

#[tokio::test]
async fn declarations_are_locked_together_in_their_namespaces() {
    let server = server_or_skip!();
    let locks = manager(&server).await;
    let first = book(&locks, &server, 7, "a".into()).await.unwrap();
    assert!(!exists(&server, "billing:invoice:7") && !exists(&server, "distlock:typed-shop:a"));
    let second = book(&locks, &server, 7, "a".into()).await.unwrap();
    assert!(second[0] > first[0] && second[1] > first[1], "{first:?} {second:?}");

    let held = locks.lock(InvoiceLock { id: 7 }).acquire().await.unwrap();
    assert!(booked(&held).await.unwrap() > second[0]);
    assert!(exists(&server, "billing:invoice:7"));
    let refused = book(&locks, &server, 7, "a".into()).await.unwrap_err();
    assert!(refused.is_busy() && !exists(&server, "distlock:typed-shop:a"), "{refused}");
    held.release().await.unwrap();
}

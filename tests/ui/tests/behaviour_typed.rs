//! Typed locks: what their leases prove, which settings hold, and what stands in their keys.

use std::marker::PhantomData;
use std::time::Duration;

use distlock::{KeySegment, Lease, LeaseHandle, LockError, LockKey, LockManager, Several, distributed_lock, scope};

#[derive(LockKey)]
#[lock(key = "coupon:{campaign_id}:{user_id}", ttl = "5s")]
struct CouponLock {
    campaign_id: u64,
    user_id: u64,
}

/// Borrows, so its lease is on a unit struct, which the derive makes.
#[derive(LockKey)]
#[lock(key = "mail:{address:hash}", witness = MailHeld)]
struct MailLock<'a> {
    address: &'a str,
}

/// The user may write the unit struct as well.
#[derive(LockKey)]
#[lock(key = "post:{address:hash}", witness = PostHeld)]
struct PostLock<'a> {
    address: &'a str,
}

#[derive(Debug)]
struct PostHeld;

/// Borrows, and names no witness.
#[derive(LockKey)]
#[lock(key = "note:{name}")]
struct NoteLock<'a> {
    name: &'a str,
}

#[derive(LockKey)]
#[lock(key = "pair:{left}-{right}:{r#type}")]
struct PairLock<T, const N: usize>
where
    T: Copy,
{
    left: T,
    right: u8,
    r#type: Kind<T>,
}

#[derive(LockKey)]
#[lock(key = "nightly")]
struct NightlyLock;

#[derive(KeySegment, Clone, Copy)]
enum Region {
    Eu,
    r#Us,
}

#[derive(KeySegment, Clone, Copy)]
struct OrderId(u64);

/// Says what a number is the number of.
#[derive(KeySegment, Clone, Copy)]
struct Kind<T> {
    value: u8,
    of: PhantomData<T>,
}

#[derive(LockKey)]
#[lock(key = "order:{region}:{id:04}:{id}")]
struct OrderLock {
    region: Region,
    id: OrderId,
}

distlock::lock_set! {
    /// Of this test.
    pub(crate) Billing { namespace = "billing", ttl = "15s", wait = "1s" }
}

#[derive(LockKey)]
#[lock(key = "invoice:{id}", set = Billing, wait = "2s")]
struct InvoiceLock {
    id: u32,
}

#[derive(LockKey)]
#[lock(key = "receipt:{id}", set = crate::Billing, ttl = "20s")]
struct ReceiptLock {
    id: u32,
}

async fn compensate(held: &Lease<CouponLock>) -> u64 {
    held.fencing_token()
}

fn coupon() -> CouponLock {
    CouponLock { campaign_id: 7, user_id: 3 }
}

async fn key_of<K: LockKey>(lock: K) -> String {
    LockManager::in_memory().lock(lock).acquire().await.unwrap().key().to_owned()
}

#[tokio::test]
async fn a_lease_is_a_witness() {
    let locks = LockManager::in_memory();
    let lease: Lease<CouponLock> = locks.lock(coupon()).acquire().await.unwrap();
    assert_eq!(lease.key(), "coupon:7:3");
    assert_eq!(lease.keys().collect::<Vec<_>>(), ["coupon:7:3"]);
    assert_eq!(compensate(&lease).await, lease.fencing_token());
    assert!(lease.remaining() <= Duration::from_secs(5));
    let handle: LeaseHandle<CouponLock> = lease.handle();
    let task = tokio::spawn(async move { (handle.fencing_token(), handle.key().to_owned()) });
    assert_eq!(task.await.unwrap(), (lease.fencing_token(), "coupon:7:3".to_owned()));
    assert!(locks.lock("coupon:7:3").try_acquire().await.unwrap().is_none());
    lease.release().await.unwrap();
    let token = locks.lock(coupon()).run(async |lease| compensate(lease).await).await.unwrap();
    assert!(token > 0);
}

#[tokio::test]
async fn a_borrowing_declaration_has_a_witness_of_its_own() {
    let locks = LockManager::in_memory();
    let address = String::from("ada@example.org");
    let mail: Lease<MailHeld> = locks.lock(MailLock { address: &address }).acquire().await.unwrap();
    let post: Lease<PostHeld> = locks.lock(PostLock { address: &address }).acquire().await.unwrap();
    let note: Lease<()> = locks.lock(NoteLock { name: "a:b" }).acquire().await.unwrap();
    drop(address);
    assert_eq!(note.key(), "note:a%3Ab");
    assert!(mail.key().starts_with("mail:") && post.key().starts_with("post:"));
    // Without a lifetime in the witness, it moves into a task.
    assert!(tokio::spawn(async move { mail.is_held() }).await.unwrap());
}

#[derive(LockKey)]
#[lock(key = "two:{left}:{right}")]
struct TwoLock<L, R> {
    left: L,
    right: R,
}

/// Code that is generic over what is locked.
fn number_of<L: distlock::OneKey>(lease: &Lease<L>) -> u64 {
    lease.fencing_token()
}

#[derive(LockKey)]
#[lock(key = "marked:{id}")]
struct MarkedLock<T> {
    id: u64,
    of: PhantomData<T>,
}

#[derive(LockKey)]
#[lock(key = "marked")]
struct OnlyMarkedLock {
    of: std::marker::PhantomData<fn() -> u8>,
}

#[distributed_lock(TwoLock::<u64, String> { left: *left, right: right.clone() }, lease = lease)]
async fn two_arguments_of_a_type(left: &u64, right: String) -> Result<String, LockError> {
    Ok(format!("{} {right}", lease.key()))
}

#[distributed_lock(key = lock, label = "two", lease = lease)]
async fn declared_argument(lock: TwoLock<u8, u8>) -> Result<String, LockError> {
    let lease: &Lease<TwoLock<u8, u8>> = lease;
    Ok(format!("{} {}", lease.key(), lock.left + lock.right))
}

#[distributed_lock(key = job.lock, label = "mail", lease = lease)]
async fn declared_field(job: Job<'_>) -> Result<String, LockError> {
    let lease: &Lease<MailHeld> = lease;
    Ok(format!("{} {}", lease.key(), job.lock.address))
}

struct Job<'a> {
    lock: MailLock<'a>,
}

#[tokio::test]
async fn generics_and_segments_stand_in_keys() {
    let locked = scope(LockManager::in_memory(), two_arguments_of_a_type(&1, "b".to_owned()));
    assert_eq!(locked.await.unwrap(), "two:1:b b");
    let locked = scope(LockManager::in_memory(), declared_argument(TwoLock { left: 1, right: 2 }));
    assert_eq!(locked.await.unwrap(), "two:1:2 3");
    let locked = scope(LockManager::in_memory(), declared_field(Job { lock: MailLock { address: "a" } }));
    assert!(locked.await.unwrap().ends_with(" a"));
    let (locks, lock) = (LockManager::in_memory(), CouponLock { campaign_id: 1, user_id: 2 });
    let lease: Lease<CouponLock> = locks.lock(&lock).acquire().await.unwrap();
    assert_eq!(lease.key(), "coupon:1:2");
    assert!(locks.lock(lock).try_acquire().await.unwrap().is_none());
    assert_eq!(number_of(&lease), lease.fencing_token());
    assert_eq!(key_of(MarkedLock::<u16> { id: 1, of: PhantomData }).await, "marked:1");
    assert_eq!(key_of(OnlyMarkedLock { of: PhantomData }).await, "marked");
    let r#type = Kind { value: 9, of: PhantomData::<u16> };
    assert_eq!(key_of(PairLock::<u16, 3> { left: 1, right: 2, r#type }).await, "pair:1-2:9");
    assert_eq!(key_of(OrderLock { region: Region::Us, id: OrderId(7) }).await, "order:Us:0007:7");
    assert_eq!(key_of(OrderLock { region: Region::Eu, id: OrderId(7) }).await, "order:Eu:0007:7");
    assert_eq!(key_of(NightlyLock).await, "nightly");
    assert_eq!(key_of(MailLock { address: "a" }).await.len(), "mail:".len() + 32);
    let blank = LockManager::in_memory().lock(NoteLock { name: " " }).acquire().await.unwrap_err();
    assert!(matches!(&blank, LockError::InvalidKey(_)), "{blank}");
}

#[tokio::test(start_paused = true)]
async fn settings_come_from_the_nearest() {
    let locks = LockManager::builder().url("memory:").default_ttl(Duration::from_secs(9)).build().await.unwrap();
    let ttl = async |remaining: Duration| remaining.as_secs_f64().ceil();
    let lease = locks.lock(InvoiceLock { id: 1 }).acquire().await.unwrap();
    assert_eq!(ttl(lease.remaining()).await, 15.0);
    let lease = locks.lock(ReceiptLock { id: 1 }).acquire().await.unwrap();
    assert_eq!(ttl(lease.remaining()).await, 20.0);
    let by_hand = locks.lock(ReceiptLock { id: 2 }).ttl(Duration::from_secs(7)).acquire().await.unwrap();
    assert_eq!(ttl(by_hand.remaining()).await, 7.0);
    let lease = locks.lock(NightlyLock).acquire().await.unwrap();
    assert_eq!(ttl(lease.remaining()).await, 9.0);

    // The wait is the declaration's where it has one, else the set's.
    let started = tokio::time::Instant::now();
    assert!(locks.lock(ReceiptLock { id: 1 }).acquire().await.unwrap_err().is_busy());
    assert_eq!(started.elapsed(), Duration::from_secs(1));
    let _held = locks.lock(InvoiceLock { id: 2 }).acquire().await.unwrap();
    let started = tokio::time::Instant::now();
    assert!(locks.lock(InvoiceLock { id: 2 }).acquire().await.unwrap_err().is_busy());
    assert_eq!(started.elapsed(), Duration::from_secs(2));
}

#[test]
fn lists_of_keys_have_a_witness() {
    fn witness<K: LockKey<Witness = Several>>(_: K) {}
    let ids = vec![String::from("a")];
    witness(&ids);
    witness(ids.as_slice());
    witness(ids);
    witness(["a", "b"]);
    witness([String::from("a"), String::from("b")]);
    witness(vec!["a"]);
    fn borrowed(both: &[&str; 2]) {
        witness(both);
    }
    borrowed(&["a", "b"]);
}

struct ClaimReq {
    user: User,
}

struct User {
    id: u64,
}

#[distributed_lock(CouponLock { campaign_id, user_id: req.user.id }, wait = "300ms", lease = lease)]
async fn claim(campaign_id: u64, req: ClaimReq) -> Result<(String, u64), LockError> {
    let token = compensate(lease).await;
    let ClaimReq { user: User { .. } } = req;
    Ok((lease.key().to_owned(), token))
}

#[distributed_lock(MailLock { address: &address }, lease = lease)]
async fn send(address: String) -> Result<String, LockError> {
    let held: &Lease<MailHeld> = lease;
    held.ensure_held()?;
    Ok(address)
}

#[distributed_lock(NightlyLock, ttl = "3s", lease = lease)]
async fn nightly() -> Result<Duration, LockError> {
    Ok(lease.remaining())
}

#[distributed_lock([CouponLock { campaign_id: id, user_id: 1 }, OrderLock { region: Region::Eu, id: OrderId(id) }, NoteLock { name }], lease = lease)]
async fn together(id: u64, name: &str) -> Result<Vec<(String, u64)>, LockError> {
    let pair: &Lease<(CouponLock, OrderLock, ())> = lease;
    let coupon: &Lease<CouponLock> = pair.part::<CouponLock>();
    let order = pair.part::<OrderLock>();
    assert_eq!(compensate(coupon).await, coupon.fencing_token());
    assert_eq!(order.key(), format!("order:Eu:{id:04}:{id}"));
    assert_eq!(order.keys().count(), 1);
    assert_eq!(pair.part::<()>().key(), format!("note:{name}"));
    assert!(std::ptr::eq(coupon, pair.part::<CouponLock>()));
    assert!(coupon.is_held() && order.handle().is_held());
    Ok(lease.fencing_tokens().map(|(key, token)| (key.to_owned(), token)).collect())
}

#[derive(LockKey)]
#[lock(key = "account:{id}", ttl = "4s")]
struct AccountLock {
    id: u32,
}

#[derive(LockKey)]
#[lock(key = "safe:{id}", ttl = "6s")]
struct SafeLock {
    id: u32,
}

#[distributed_lock([AccountLock { id }, SafeLock { id }])]
async fn disputed(id: u32) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock([AccountLock { id }, SafeLock { id }], ttl = "5s", lease = lease)]
async fn agreed(id: u32) -> Result<Duration, LockError> {
    Ok(lease.remaining())
}

/// The same declaration twice: each key has its token, and none of them is `the` part.
#[distributed_lock([AccountLock { id: from }, AccountLock { id: to }], lease = lease)]
async fn transfer(from: u32, to: u32) -> Result<Vec<String>, LockError> {
    Ok(lease.keys().map(str::to_owned).collect())
}

#[distributed_lock(key = InvoiceLock { id }, label = "invoice", lease = lease)]
async fn computed(id: u32) -> Result<Duration, LockError> {
    let lease: &Lease<InvoiceLock> = lease;
    Ok(lease.remaining())
}

#[tokio::test]
async fn functions_lock_declarations() {
    let locks = LockManager::in_memory();
    let req = || ClaimReq { user: User { id: 3 } };
    let (key, token) = scope(&locks, claim(7, req())).await.unwrap();
    assert!(key == "coupon:7:3" && token > 0);
    let held = locks.lock(coupon()).acquire().await.unwrap();
    assert!(scope(&locks, claim(7, req())).await.unwrap_err().is_busy());
    drop(held);
    assert_eq!(scope(&locks, send("ada".to_owned())).await.unwrap(), "ada");
    // A future with a typed lock is as spawnable as its body.
    assert_eq!(tokio::spawn(scope(&locks, send("bob".to_owned()))).await.unwrap().unwrap(), "bob");
    assert!(scope(&locks, nightly()).await.unwrap() <= Duration::from_secs(3));
    assert!(scope(&locks, computed(1)).await.unwrap() > Duration::from_secs(14));
}

#[tokio::test]
async fn several_declarations_are_one_lock() {
    let locks = LockManager::in_memory();
    let tokens = scope(&locks, together(7, "x")).await.unwrap();
    let keys: Vec<&str> = tokens.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(keys, ["coupon:7:1", "order:Eu:0007:7", "note:x"]);
    let held = locks.lock("note:x").acquire().await.unwrap();
    assert!(scope(&locks, together(7, "x")).await.unwrap_err().is_busy());
    // All or nothing: the other keys are free.
    assert!(locks.lock(CouponLock { campaign_id: 7, user_id: 1 }).try_acquire().await.unwrap().is_some());
    drop(held);

    assert_eq!(scope(&locks, transfer(2, 1)).await.unwrap(), ["account:2", "account:1"]);
    assert_eq!(scope(&locks, transfer(1, 1)).await.unwrap(), ["account:1", "account:1"]);

    let lease: Lease<(AccountLock, NightlyLock)> =
        locks.lock((AccountLock { id: 1 }, NightlyLock)).acquire().await.unwrap();
    assert_eq!(lease.part::<NightlyLock>().key(), "nightly");
    assert_eq!(lease.handle().keys().collect::<Vec<_>>(), ["account:1", "nightly"]);
    let several: Lease<Several> = locks.lock(["b", "a"]).acquire().await.unwrap();
    assert_eq!(several.keys().collect::<Vec<_>>(), ["b", "a"]);
}

#[tokio::test]
async fn declarations_that_disagree_need_a_word() {
    let locks = LockManager::in_memory();
    let refused = scope(&locks, disputed(1)).await.unwrap_err();
    assert!(matches!(&refused, LockError::Config(_)) && refused.to_string().contains("`ttl`"), "{refused}");
    assert!(scope(&locks, agreed(1)).await.unwrap() <= Duration::from_secs(5));
    let refused = locks.lock((AccountLock { id: 1 }, SafeLock { id: 1 })).acquire().await.unwrap_err();
    assert!(matches!(refused, LockError::Config(_)));
    let by_hand = locks.lock((AccountLock { id: 1 }, SafeLock { id: 1 })).ttl(Duration::from_secs(9));
    assert!(by_hand.acquire().await.unwrap().remaining() > Duration::from_secs(6));
}

// What must hold in every edition. Each check compares with the same function without the attribute.

use std::sync::{Arc, Mutex};

use distlock::{declarations, distributed_lock, scope, KeySegment, Lease, LockError, LockKey, LockManager};

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<&'static str>>>);

struct Noisy(&'static str, Log);

impl Drop for Noisy {
    fn drop(&mut self) {
        (self.1).0.lock().unwrap().push(self.0);
    }
}

impl Noisy {
    fn id(&self) -> u8 {
        1
    }
}

impl Log {
    fn noisy(&self, name: &'static str) -> Noisy {
        Noisy(name, self.clone())
    }

    fn take(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// A tail expression with a temporary: editions differ in when it is dropped.
async fn plain(log: Log, first: Noisy, (second, _third): (Noisy, Noisy)) -> Result<u8, LockError> {
    let _local = log.noisy("local");
    let _ = (&first, &second);
    match log.noisy("tail").id() {
        1 => Ok(log.noisy("arm").id()),
        other => Ok(other),
    }
}

#[distributed_lock(key = "k", ttl = "5s", wait = "0s", lease = lease, on_busy = |_| Ok(0))]
async fn locked(log: Log, first: Noisy, (second, _third): (Noisy, Noisy)) -> Result<u8, LockError> {
    let _ = lease.key();
    let _local = log.noisy("local");
    let _ = (&first, &second);
    match log.noisy("tail").id() {
        1 => Ok(log.noisy("arm").id()),
        other => Ok(other),
    }
}

async fn plain_temporary(log: &Log) -> u8 {
    let _local = log.noisy("local");
    log.noisy("tail").id()
}

#[distributed_lock(key = "k", on_busy = |_| 0, on_error = |_| 0, on_lost = |_| 0)]
async fn locked_temporary(log: &Log) -> u8 {
    let _local = log.noisy("local");
    log.noisy("tail").id()
}

/// A field of an argument moves, the rest stays: closures of edition 2018 capture the whole, later ones the parts.
struct Pair {
    left: Noisy,
    right: Noisy,
}

async fn plain_parts(pair: Pair) -> Result<u8, LockError> {
    drop(pair.left);
    tokio::task::yield_now().await;
    Ok(pair.right.id())
}

#[distributed_lock(key = "k:{pair.right.0}")]
async fn locked_parts(pair: Pair) -> Result<u8, LockError> {
    drop(pair.left);
    tokio::task::yield_now().await;
    Ok(pair.right.id())
}

/// `dyn` is a keyword, `async` a word of this edition; raw names are names.
#[distributed_lock(key = "{r#dyn}:{type}")]
async fn raw(r#dyn: u8, r#type: &str) -> Result<usize, LockError> {
    Ok(usize::from(r#dyn) + r#type.len())
}

struct Shop(u8);

#[async_trait::async_trait]
trait Store {
    async fn save(&self, id: u8) -> Result<u8, LockError>;
}

#[async_trait::async_trait]
impl Store for Shop {
    #[distributed_lock(key = "{self.0}:{id}")]
    async fn save(&self, id: u8) -> Result<u8, LockError> {
        Ok(self.0 + id)
    }
}

distlock::lock_set! { Locks { namespace = "editions", ttl = "15s" } }

#[derive(KeySegment, Clone, Copy)]
enum Kind {
    r#Async,
    Dyn,
}

#[derive(LockKey)]
#[lock(key = "typed:{kind}:{dyn}:{r#type}", set = Locks, witness = TypedHeld)]
struct TypedLock<'a> {
    kind: Kind,
    r#dyn: u8,
    r#type: &'a str,
}

#[distributed_lock(TypedLock { kind: Kind::Async, r#dyn: pair.right.id(), r#type: &name }, lease = lease)]
async fn typed(pair: Pair, name: String) -> Result<String, LockError> {
    let lease: &Lease<TypedHeld> = lease;
    drop(pair.left);
    Ok(format!("{} {}", lease.key(), name))
}

#[tokio::test]
async fn typed_locks_work() {
    let log = Log::default();
    let pair = Pair { left: log.noisy("left"), right: log.noisy("right") };
    let key = scope(LockManager::in_memory(), typed(pair, "a".to_owned())).await.unwrap();
    assert_eq!(key, "typed:Async:1:a a");
    let lock = TypedLock { kind: Kind::Dyn, r#dyn: 2, r#type: "b" };
    assert_eq!(LockManager::in_memory().lock(lock).acquire().await.unwrap().key(), "typed:Dyn:2:b");
    assert!(declarations().iter().any(|declaration| declaration.name() == "TypedLock"));
}

#[tokio::test]
async fn drop_order_is_that_of_the_plain_function() {
    let log = Log::default();
    let args = || (log.noisy("first"), (log.noisy("second"), log.noisy("third")));
    let (first, rest) = args();
    plain(log.clone(), first, rest).await.unwrap();
    let expected = log.take();
    let (first, rest) = args();
    scope(LockManager::in_memory(), locked(log.clone(), first, rest)).await.unwrap();
    assert_eq!(log.take(), expected);

    plain_temporary(&log).await;
    let expected = log.take();
    scope(LockManager::in_memory(), locked_temporary(&log)).await;
    assert_eq!(log.take(), expected);

    let pair = || Pair { left: log.noisy("left"), right: log.noisy("right") };
    plain_parts(pair()).await.unwrap();
    let expected = log.take();
    scope(LockManager::in_memory(), locked_parts(pair())).await.unwrap();
    assert_eq!(log.take(), expected);
}

#[tokio::test]
async fn methods_and_raw_names_work() {
    scope(LockManager::in_memory(), async {
        assert_eq!(raw(1, "ab").await.unwrap(), 3);
        assert_eq!(Shop(1).save(2).await.unwrap(), 3);
    })
    .await;
}

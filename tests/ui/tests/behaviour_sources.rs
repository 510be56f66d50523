//! What an annotated function locks whose key is not one template: computed keys, lists of keys, and a key for each thing.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use distlock::{Lease, LockError, LockManager, Several, distributed_lock, scope};

/// Which of these keys are taken.
async fn taken(locks: &LockManager, keys: &[&str]) -> Vec<String> {
    let mut taken = Vec::new();
    for key in keys {
        // Not in the scope of the call that holds them: that would be re-entrance.
        let (locks, key) = (locks.clone(), (*key).to_owned());
        let found = tokio::spawn(async move { (locks.lock(&key).try_acquire().await.unwrap().is_none(), key) });
        if let (true, key) = found.await.unwrap() {
            taken.push(key);
        }
    }
    taken
}

async fn locked<F: Future>(future: F) -> F::Output {
    scope(LockManager::in_memory(), future).await
}

// ----- computed -----

struct Order {
    id: u64,
    key: String,
}

struct Text(&'static str);

impl AsRef<str> for Text {
    fn as_ref(&self) -> &str {
        self.0
    }
}

const NIGHTLY: &str = "nightly";

#[distributed_lock(key = NIGHTLY, label = "job", lease = lease)]
async fn constant() -> Result<String, LockError> {
    Ok(lease.key().to_owned())
}

#[distributed_lock(key = format!("order/{}", order.id), label = "order", lease = lease)]
async fn formatted(order: Order) -> Result<(String, Order), LockError> {
    Ok((lease.key().to_owned(), order))
}

#[distributed_lock(key = order.key, label = "order", lease = lease)]
async fn field(order: Order) -> Result<(String, Order), LockError> {
    Ok((lease.key().to_owned(), order))
}

#[distributed_lock(key = name, label = "name", lease = lease)]
async fn generic<T: AsRef<str>>(name: T) -> Result<(String, T), LockError> {
    Ok((lease.key().to_owned(), name))
}

#[distributed_lock(key = Text("text"), label = "text", lease = lease)]
async fn owned() -> Result<String, LockError> {
    let plain: &Lease = lease;
    Ok(plain.key().to_owned())
}

#[distributed_lock(key = { count.set(count.get() + 1); "once" }, label = "once", ttl = { assert_eq!(count.get(), 1); Duration::from_secs(1) })]
async fn once(count: &Cell<u32>) -> Result<u32, LockError> {
    Ok(count.get())
}

#[distributed_lock(key = name, label = "name", ttl = "1s")]
async fn blank(name: &str, ran: &Cell<bool>) -> Result<(), LockError> {
    ran.set(true);
    Ok(())
}

#[tokio::test]
async fn a_computed_key_is_taken_whole_and_by_reference() {
    let order = || Order { id: 7, key: "a:{b}:%".replace(['{', '}'], "") };
    assert_eq!(locked(constant()).await.unwrap(), "nightly");
    let (key, order_back) = locked(formatted(order())).await.unwrap();
    assert_eq!((key.as_str(), order_back.id), ("order/7", 7));
    let (key, order_back) = locked(field(order())).await.unwrap();
    assert_eq!((key, order_back.key), ("a:b:%".to_owned(), "a:b:%".to_owned()));
    assert_eq!(locked(generic("x")).await.unwrap(), ("x".to_owned(), "x"));
    assert_eq!(locked(generic(Arc::<str>::from("y"))).await.unwrap().0, "y");
    assert_eq!(locked(generic(String::from("z"))).await.unwrap().1, "z");
    assert_eq!(locked(owned()).await.unwrap(), "text");
}

#[tokio::test]
async fn a_computed_key_is_evaluated_once_and_first() {
    let count = Cell::new(0);
    let call = once(&count);
    assert_eq!(count.get(), 0);
    assert_eq!(locked(call).await.unwrap(), 1);
}

#[tokio::test]
async fn a_computed_key_that_is_blank_locks_nothing() {
    let ran = Cell::new(false);
    assert!(matches!(locked(blank(" ", &ran)).await, Err(LockError::InvalidKey(_))));
    assert!(!ran.get());
    locked(blank("a", &ran)).await.unwrap();
    assert!(ran.get());
}

// ----- several -----

#[distributed_lock(keys = ["order:{order}", "user:{user}"], ttl = "5s", lease = lease, manager = locks)]
async fn pair(locks: &LockManager, order: u64, user: &str) -> Result<Vec<String>, LockError> {
    let several: &Lease<Several> = lease;
    several.ensure_held()?;
    Ok(taken(locks, &["order:1", "user:a", "user:b"]).await)
}

#[distributed_lock(keys = ["order:{order}"], manager = locks)]
async fn alone(locks: &LockManager, order: u64) -> Result<Vec<String>, LockError> {
    Ok(taken(locks, &["order:1", "order:2"]).await)
}

#[tokio::test]
async fn several_keys_are_held_together_and_given_back_together() {
    let locks = LockManager::in_memory();
    assert_eq!(pair(&locks, 1, "a").await.unwrap(), ["order:1", "user:a"]);
    assert_eq!(taken(&locks, &["order:1", "user:a"]).await, [""; 0]);
    assert_eq!(alone(&locks, 2).await.unwrap(), ["order:2"]);
}

#[tokio::test]
async fn several_keys_are_all_or_nothing() {
    let locks = LockManager::in_memory();
    for held in ["order:1", "user:a"] {
        let lease = locks.lock(held).acquire().await.unwrap();
        let LockError::Busy(busy) = pair(&locks, 1, "a").await.unwrap_err() else { panic!() };
        assert_eq!(busy.key(), held);
        assert_eq!(taken(&locks, &["order:1", "user:a"]).await, [held]);
        lease.release().await.unwrap();
    }
    let blank = pair(&locks, 1, " ").await.unwrap_err();
    assert!(matches!(blank, LockError::InvalidKey(_)), "{blank:?}");
    assert_eq!(taken(&locks, &["order:1"]).await, [""; 0]);
}

// ----- one for each thing -----

#[distributed_lock(keys(for id in &ids => "invoice:{id}"), wait = "5s", manager = locks)]
async fn process(locks: &LockManager, ids: Vec<u64>, inside: &AtomicU32) -> Result<Vec<u64>, LockError> {
    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are in here");
    tokio::task::yield_now().await;
    inside.fetch_sub(1, Ordering::SeqCst);
    Ok(ids)
}

#[tokio::test]
async fn lists_that_share_a_thing_exclude_each_other_in_whatever_order() {
    let locks = LockManager::in_memory();
    let inside = Arc::new(AtomicU32::new(0));
    let mut tasks = Vec::new();
    for round in 0..200 {
        let ids = [vec![1, 2], vec![2, 1], vec![1, 3], vec![3, 1, 1]][round % 4].clone();
        let (locks, inside) = (locks.clone(), inside.clone());
        tasks.push(tokio::spawn(async move { process(&locks, ids.clone(), &inside).await.map(|back| back == ids) }));
    }
    for task in tasks {
        assert!(task.await.unwrap().unwrap());
    }
}

macro_rules! loops {
    ($($name:ident($($argument:ident: $ty:ty)?) $pattern:pat, $items:expr, $template:literal;)*) => {$(
        #[distributed_lock(keys(for $pattern in $items => $template), manager = locks)]
        async fn $name(locks: &LockManager, $($argument: $ty)?) -> Result<Vec<String>, LockError> {
            let found = taken(locks, &["a:1", "a:2", "a:3", "a:x%3Ay"]).await;
            $(let _still_there = &$argument;)?
            Ok(found)
        }
    )*};
}

loops! {
    owned_list(ids: Vec<u64>) id, ids, "a:{id}";
    lent_list(ids: &[u64]) id, ids, "a:{id}";
    lent_twice(ids: &[u64]) &id, ids, "a:{id}";
    shared_list(ids: Arc<[u64]>) id, ids, "a:{id}";
    shared_vec(ids: Arc<Vec<u64>>) id, ids, "a:{id}";
    array(ids: [u8; 2]) id, ids, "a:{id}";
    parts(ids: Vec<(u64, String)>) (id, _), &ids, "a:{id}";
    texts(ids: Vec<String>) name, &ids, "a:{name}";
    mapped(ids: Vec<u64>) id, ids.iter().map(|id| id + 1), "a:{id}";
    range() id, 1..3_u8, "a:{id}";
    list() id, [1_u8, 2], "a:{id}";
    field_of_item(ids: Vec<(u64, String)>) item, ids, "a:{item.0}";
}

#[tokio::test]
async fn a_loop_goes_through_whatever_is_a_list() {
    let locks = LockManager::in_memory();
    let named = |names: [&str; 2]| vec![(1, names[0].to_owned()), (2, names[1].to_owned())];
    let both = ["a:1", "a:2"];
    assert_eq!(owned_list(&locks, vec![2, 1]).await.unwrap(), both);
    assert_eq!(lent_list(&locks, &[2, 1]).await.unwrap(), both);
    assert_eq!(lent_twice(&locks, &[2, 1, 2]).await.unwrap(), both);
    assert_eq!(shared_list(&locks, [1, 2].into()).await.unwrap(), both);
    assert_eq!(shared_vec(&locks, Arc::new(vec![1, 2])).await.unwrap(), both);
    assert_eq!(array(&locks, [1, 2]).await.unwrap(), both);
    assert_eq!(parts(&locks, named(["x", "y"])).await.unwrap(), both);
    assert_eq!(texts(&locks, vec!["x:y".to_owned()]).await.unwrap(), ["a:x%3Ay"]);
    assert_eq!(mapped(&locks, vec![1, 2]).await.unwrap(), ["a:2", "a:3"]);
    assert_eq!(range(&locks).await.unwrap(), both);
    assert_eq!(list(&locks).await.unwrap(), both);
    assert_eq!(field_of_item(&locks, named(["x", "y"])).await.unwrap(), both);
}

#[tokio::test]
async fn nothing_in_the_list_is_no_key_and_one_bad_value_spoils_all() {
    let locks = LockManager::in_memory();
    let inside = AtomicU32::new(0);
    let empty = process(&locks, Vec::new(), &inside).await.unwrap_err();
    assert!(matches!(empty, LockError::InvalidKey(_)), "{empty:?}");
    let blank = texts(&locks, vec!["x".to_owned(), " ".to_owned()]).await.unwrap_err();
    assert!(matches!(blank, LockError::InvalidKey(_)) && blank.to_string().contains("`{name}` is blank"), "{blank}");
    assert_eq!(taken(&locks, &["a:x"]).await, [""; 0]);
}

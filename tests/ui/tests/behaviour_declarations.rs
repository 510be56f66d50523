//! The list of declarations: what it knows of typed locks and of functions, wherever they stand.

use std::time::Duration;

use distlock::{Declaration, LockError, LockKey, LockManager, Renew, Wait, declarations, distributed_lock};

const TTL: Duration = Duration::from_secs(9);

distlock::lock_set! {
    Billing { namespace = "billing", ttl = "15s" }
}

#[derive(LockKey)]
#[lock(key = "invoice:{id}", set = Billing, max_hold = "1m")]
struct InvoiceLock {
    id: u32,
}

#[distributed_lock(key = "order:{id}:{mail:hash}", ttl = TTL, renew = "1s", wait = forever, on_busy = skip, on_error = |_| None, on_lost = finish)]
async fn ship(id: u64, mail: &str) -> Option<()> {
    Some(())
}

#[distributed_lock(keys = ["shop:{shop}", "user:{user}"], ttl = limit, min_hold = "2s")]
async fn buy(shop: u32, user: u32, limit: Duration) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(InvoiceLock { id }, ttl = "20s")]
async fn pay(id: u32) -> Result<(), LockError> {
    Ok(())
}

/// One for each type it is used with, and one in the list.
#[distributed_lock(key = "generic:{id}")]
async fn generic<T: distlock::KeySegment>(id: T) -> Result<(), LockError> {
    Ok(())
}

struct Shop;

impl Shop {
    const TTL: Duration = Duration::from_secs(8);

    #[distributed_lock(key = "method:{id}", ttl = Self::TTL)]
    async fn method(&self, id: u32) -> Result<(), LockError> {
        Ok(())
    }
}

macro_rules! made {
    ($($name:ident)*) => {$(
        #[distributed_lock(key = "made:{id}")]
        async fn $name(id: u32) -> Result<(), LockError> {
            Ok(())
        }
    )*};
}

made!(first second);

/// Written twice, as some attributes do.
macro_rules! twice {
    ($item:item) => {
        mod one {
            use super::*;
            $item
        }
        $item
    };
}

twice! {
    #[distributed_lock(key = "twice")]
    #[allow(dead_code, missing_docs, unreachable_pub)]
    pub async fn again() -> Result<(), LockError> { Ok(()) }
}

fn named(name: &str) -> Declaration {
    let mut found: Vec<Declaration> = declarations().into_iter().filter(|found| found.name() == name).collect();
    assert_eq!(found.len(), 1, "{name}: {found:?}");
    found.remove(0)
}

#[tokio::test]
async fn functions_and_types_are_listed_with_what_they_say() {
    let ship_ = named("ship");
    assert_eq!(ship_.label(), "order:{}:{}");
    assert_eq!(ship_.template(), "order:{id}:{mail:hash}");
    assert_eq!(ship_.ttl(), Some(TTL));
    assert_eq!(ship_.renew(), Some(Renew::Every(Duration::from_secs(1))));
    assert_eq!(ship_.wait(), Some(Wait::Forever));
    assert_eq!((ship_.max_hold(), ship_.min_hold(), ship_.namespace()), (None, None, None));
    assert!(ship_.file().ends_with("behaviour_declarations.rs") && ship_.line() == 19, "{ship_:?}");
    assert_eq!(ship_.module(), module_path!());
    assert_eq!(ship_.function(), concat!(module_path!(), "::ship"));
    assert!(!ship_.is_type());
    let options: Vec<_> = ship_.options().collect();
    assert!(options.contains(&("ttl", "TTL")) && options.contains(&("on_busy", "skip")), "{options:?}");
    assert!(options.contains(&("wait", "forever")) && options.contains(&("renew", "1s")), "{options:?}");
    assert!(ship_.to_string().starts_with("`order:{}:{}` (behaviour_declarations::ship at "), "{ship_}");

    let buy_ = named("buy");
    assert_eq!(buy_.templates().collect::<Vec<_>>(), ["shop:{shop}", "user:{user}"]);
    assert_eq!((buy_.ttl(), buy_.min_hold()), (None, Some(Duration::from_secs(2))));
    assert!(buy_.options().any(|option| option == ("ttl", "limit")));

    let invoice = named("InvoiceLock");
    assert!(invoice.is_type());
    assert_eq!(invoice.template(), "invoice:{id}");
    assert_eq!((invoice.ttl(), invoice.namespace()), (Some(Duration::from_secs(15)), Some("billing")));
    assert_eq!(invoice.max_hold(), Some(Duration::from_secs(60)));

    let pay_ = named("pay");
    assert_eq!((pay_.label(), pay_.ttl()), ("InvoiceLock", Some(Duration::from_secs(20))));
    assert!(pay_.template().starts_with("InvoiceLock") && pay_.templates().count() == 0);

    assert_eq!(named("method").ttl(), None);
    assert_eq!(named("generic").label(), "generic:{}");

    // All of them work as well.
    let locks = LockManager::in_memory();
    distlock::scope(locks, async {
        ship(1, "a").await.unwrap();
        buy(1, 2, TTL).await.unwrap();
        pay(1).await.unwrap();
        generic(1).await.unwrap();
        generic("a").await.unwrap();
        Shop.method(1).await.unwrap();
        first(1).await.unwrap();
        second(1).await.unwrap();
        again().await.unwrap();
    })
    .await;
}

#[test]
fn a_place_is_listed_once_for_each_name() {
    // Two functions of one macro call share a place.
    let (first, second) = (named("first"), named("second"));
    assert_eq!(first.label(), second.label());
    let again: Vec<Declaration> = declarations().into_iter().filter(|found| found.name() == "again").collect();
    // Two modules, so two functions.
    assert_eq!(again.len(), 2, "{again:?}");
}

#[test]
fn the_list_is_sorted_by_place() {
    let places: Vec<(&str, u32)> = declarations().iter().map(|found| (found.file(), found.line())).collect();
    assert!(places.is_sorted(), "{places:?}");
    assert!(places.len() >= 9);
}

#[tokio::test]
async fn declarations_that_agree_are_no_error() {
    distlock::assert_declarations();
    LockManager::builder().url("memory:").build().await.unwrap();
}

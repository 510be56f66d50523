//! Which key an annotated function locks.

use std::cell::RefCell;
use std::num::NonZero;
use std::sync::{Arc, Mutex};

use distlock::{LockError, LockKey, LockManager, distributed_lock, scope};

struct User {
    id: u64,
    email: String,
}

const REGION: &str = "eu";

#[distributed_lock(key = "both:{pair.borrow_mut().0}:{pair.borrow_mut().1:hash}:{pair.borrow_mut().0:02}", lease = lease)]
async fn guards(pair: &RefCell<(u8, &str)>) -> Result<String, LockError> {
    Ok(lease.key().to_owned())
}

#[distributed_lock(keys = ["a:{pair.lock().unwrap().0}", "b:{pair.lock().unwrap().1}"], lease = lease)]
async fn guards_of_several(pair: &Mutex<(u8, u8)>) -> Result<usize, LockError> {
    Ok(lease.keys().count())
}

#[distributed_lock(keys(for at in [0, 1] => "{at}:{pair.borrow_mut()[at]}:{pair.borrow_mut()[1 - at]}"), lease = lease)]
async fn guards_of_a_loop(pair: &RefCell<[u8; 2]>) -> Result<usize, LockError> {
    Ok(lease.keys().count())
}

#[derive(LockKey)]
#[lock(key = "both:{pair.borrow_mut().0}:{pair.borrow_mut().1}")]
struct GuardsOfADeclaration {
    pair: RefCell<(u8, u8)>,
}

#[distributed_lock(key = "coupon:{campaign}:{user.id:06}:{user.email:hash}:{REGION}", lease = lease)]
async fn fields(campaign: &str, user: &User) -> Result<String, LockError> {
    Ok(lease.key().to_owned())
}

#[distributed_lock(key = "{{shop:{shop}}}:{a}/{b}", lease = lease)]
async fn escaped(shop: &str, a: char, b: &str) -> Result<String, LockError> {
    Ok(lease.key().to_owned())
}

#[distributed_lock(key = "n:{n}", lease = lease)]
async fn before_mutation(mut n: u32) -> Result<(String, u32), LockError> {
    n += 1;
    Ok((lease.key().to_owned(), n))
}

#[distributed_lock(key = "n:{text.trim().len()}:{numbers[1]:#x}:{numbers[index]}", lease = lease)]
async fn expressions(text: &str, numbers: [u8; 3], index: usize) -> Result<String, LockError> {
    Ok(lease.key().to_owned())
}

#[distributed_lock(key = "{type}:{id}", lease = lease)]
async fn raw(r#type: Arc<str>, id: NonZero<u8>) -> Result<String, LockError> {
    Ok(lease.key().to_owned())
}

#[allow(non_upper_case_globals, reason = "it looks like an argument")]
static region: &str = "us";

#[distributed_lock(key = "{self::region}:{id}", lease = lease)]
async fn of_a_static(id: u8) -> Result<String, LockError> {
    Ok(lease.key().to_owned())
}

struct Shop {
    id: u8,
}

impl Shop {
    const PREFIX: &str = "shop";

    #[distributed_lock(key = "{Self::PREFIX}:{self.id}", lease = lease)]
    async fn method(&mut self) -> Result<String, LockError> {
        self.id += 1;
        Ok(lease.key().to_owned())
    }
}

async fn locked<F: Future>(future: F) -> F::Output {
    scope(LockManager::in_memory(), future).await
}

#[tokio::test]
async fn templates_print_what_they_say() {
    let user = User { id: 42, email: "abc".to_owned() };
    assert_eq!(
        locked(fields("x mas", &user)).await.unwrap(),
        "coupon:x%20mas:000042:ba7816bf8f01cfea414140de5dae2223:eu"
    );
    assert_eq!(locked(expressions(" ab ", [1, 255, 3], 2)).await.unwrap(), "n:2:0xff:3");
    assert_eq!(locked(of_a_static(1)).await.unwrap(), "us:1");
    assert_eq!(locked(raw("kind".into(), NonZero::<u8>::MIN)).await.unwrap(), "kind:1");
}

/// A guard that lived on would panic in the `RefCell` and wait for itself in the `Mutex`.
#[tokio::test]
async fn what_one_value_is_read_through_is_gone_before_the_next() {
    assert_eq!(locked(guards(&RefCell::new((7, "abc")))).await.unwrap(), "both:7:ba7816bf8f01cfea414140de5dae2223:07");
    assert_eq!(locked(guards_of_several(&Mutex::new((7, 8)))).await.unwrap(), 2);
    assert_eq!(locked(guards_of_a_loop(&RefCell::new([7, 8]))).await.unwrap(), 2);
    let lock = GuardsOfADeclaration { pair: RefCell::new((7, 8)) };
    let guard = LockManager::in_memory().lock(lock).acquire().await.unwrap();
    assert_eq!(guard.key(), "both:7:8");
}

#[tokio::test]
async fn the_key_has_the_values_of_the_call() {
    assert_eq!(locked(before_mutation(1)).await.unwrap(), ("n:1".to_owned(), 2));
    let mut shop = Shop { id: 1 };
    assert_eq!(locked(shop.method()).await.unwrap(), "shop:1");
    assert_eq!(shop.id, 2);
}

#[tokio::test]
async fn no_value_forges_a_neighbour_or_a_hash_tag() {
    assert_eq!(locked(escaped("7}:x{", '/', "b")).await.unwrap(), "{shop:7%7D%3Ax%7B}:%2F/b");
}

#[tokio::test]
async fn a_blank_value_locks_nothing() {
    let user = User { id: 42, email: " ".to_owned() };
    let err = locked(fields("x", &user)).await.unwrap_err();
    assert!(matches!(err, LockError::InvalidKey(_)), "{err:?}");
    assert!(err.to_string().contains("user.email"), "{err}");
}

#[distributed_lock(key = "{a}:{b}-3A{c}", lease = lease)]
async fn hostile(a: &str, b: &str, c: &str) -> Result<String, LockError> {
    Ok(lease.key().to_owned())
}

/// Separators, what they are escaped to, and what stands around them in the template.
const HOSTILE: [&str; 5] = [":", "-3A", "a", "%3A", " "];

#[tokio::test]
async fn different_arguments_never_share_a_key() {
    let mut words: Vec<String> = HOSTILE.iter().map(|word| (*word).to_owned()).collect();
    words.extend(HOSTILE.iter().flat_map(|first| HOSTILE.iter().map(move |second| format!("{first}{second}"))));
    let mut seen = std::collections::HashMap::new();
    locked(async {
        for a in &words {
            for b in &words {
                for c in &words {
                    let Ok(key) = hostile(a, b, c).await else { continue };
                    if let Some(other) = seen.insert(key.clone(), (a, b, c)) {
                        panic!("{key:?} is of {other:?} and of {:?}", (a, b, c));
                    }
                }
            }
        }
    })
    .await;
    assert!(seen.len() > 20_000, "only {} keys were made", seen.len());
}

//! What is dropped when, and what is evaluated when: as in the function without the attribute, and the lock last.

use std::cell::Cell;
use std::sync::{Arc, Mutex, OnceLock};

use distlock::{LeaseHandle, LockError, LockManager, distributed_lock};

/// Notes its name when it is dropped, and whether the lock is still held then.
struct Noisy(&'static str, Log);

#[derive(Clone)]
struct Log(Arc<Mutex<Vec<String>>>, LockManager);

impl Log {
    fn new() -> Self {
        Self(Arc::default(), LockManager::in_memory())
    }

    fn note(&self, what: &str) {
        self.0.lock().unwrap().push(what.to_owned());
    }

    fn taken(self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    fn noisy(&self, name: &'static str) -> Noisy {
        Noisy(name, self.clone())
    }
}

impl Drop for Noisy {
    fn drop(&mut self) {
        self.1.note(self.0);
    }
}

impl Noisy {
    fn id(&self) -> u8 {
        1
    }
}

macro_rules! both {
    ($plain:ident, $locked:ident, $manager:expr, ($($arg:tt)*) $body:block) => {
        async fn $plain($($arg)*) -> Result<u8, LockError> $body

        #[distributed_lock(key = "k", manager = $manager)]
        async fn $locked($($arg)*) -> Result<u8, LockError> $body
    };
}

both!(plain, locked, log.1, (log: &Log, first: Noisy, mut second: Noisy, (third, _fourth): (Noisy, Noisy), _permit: Noisy) {
    let local = log.noisy("local");
    second.0 = "second, changed";
    log.note("body");
    let _ = (&third, &first, &local, &second);
    Ok(log.noisy("tail").id())
});

both!(plain_moving, locked_moving, log.1, (log: &Log, first: Noisy, second: Noisy) {
    drop(second);
    tokio::task::yield_now().await;
    log.note("body");
    Ok(first.id())
});

#[tokio::test]
async fn drop_order_is_that_of_the_plain_function() {
    let (expected, found) = (Log::new(), Log::new());
    let call = |log: &Log| {
        (log.noisy("first"), log.noisy("second"), (log.noisy("third"), log.noisy("fourth")), log.noisy("permit"))
    };
    let (a, b, c, d) = call(&expected);
    plain(&expected, a, b, c, d).await.unwrap();
    let (a, b, c, d) = call(&found);
    locked(&found, a, b, c, d).await.unwrap();
    let expected = expected.taken();
    assert_eq!(expected, ["body", "tail", "local", "permit", "fourth", "third", "second, changed", "first"]);
    assert_eq!(found.taken(), expected);
}

#[tokio::test]
async fn an_argument_that_the_body_drops_is_dropped_there() {
    let (expected, found) = (Log::new(), Log::new());
    plain_moving(&expected, expected.noisy("first"), expected.noisy("second")).await.unwrap();
    locked_moving(&found, found.noisy("first"), found.noisy("second")).await.unwrap();
    assert_eq!(found.taken(), expected.taken());
}

/// A closure that mentions the arguments in another order than they stand in.
#[distributed_lock(key = "k", manager = log.1, on_busy = |_| { drop(first); drop(second); Ok(0) })]
async fn locked_with_a_closure(log: &Log, first: Noisy, second: Noisy, third: Noisy) -> Result<u8, LockError> {
    log.note("body");
    let _ = &third;
    Ok(1)
}

async fn plain_with_a_closure(log: &Log, first: Noisy, second: Noisy, third: Noisy) -> Result<u8, LockError> {
    log.note("body");
    let _ = (&first, &second, &third);
    Ok(1)
}

#[tokio::test]
async fn a_closure_does_not_change_the_order() {
    let (expected, found) = (Log::new(), Log::new());
    let call = |log: &Log| (log.noisy("first"), log.noisy("second"), log.noisy("third"));
    let (a, b, c) = call(&expected);
    plain_with_a_closure(&expected, a, b, c).await.unwrap();
    let (a, b, c) = call(&found);
    locked_with_a_closure(&found, a, b, c).await.unwrap();
    assert_eq!(found.taken(), expected.taken());
}

/// Tells whether the lease was held when it was dropped.
struct Witness(Log, Arc<OnceLock<LeaseHandle>>);

impl Witness {
    fn is_held(&self) -> bool {
        self.1.get().is_some_and(LeaseHandle::is_held)
    }

    fn same(&self) -> Self {
        Self(self.0.clone(), self.1.clone())
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.0.note(if self.is_held() { "held" } else { "free" });
    }
}

#[distributed_lock(key = "k", manager = log.1, lease = lease)]
async fn witnessed(log: &Log, argument: Witness, _permit: Witness) -> Result<(), LockError> {
    argument.1.set(lease.handle()).unwrap();
    let _local = argument.same();
    Ok(())
}

#[tokio::test]
async fn everything_is_dropped_under_the_lock_which_is_free_when_the_call_returns() {
    let log = Log::new();
    let witness = Witness(log.clone(), Arc::default());
    witnessed(&log, witness.same(), witness.same()).await.unwrap();
    assert!(!witness.is_held());
    assert_eq!(log.clone().taken(), ["held", "held", "held"]);
}

fn noted(log: &Log, what: &str) -> u8 {
    log.note(what);
    1
}

impl Log {
    fn part(&self, what: &str) -> u8 {
        noted(self, what)
    }

    fn manager(&self) -> LockManager {
        self.note("manager");
        self.1.clone()
    }

    fn ttl(&self) -> std::time::Duration {
        self.note("ttl");
        std::time::Duration::from_secs(1)
    }
}

#[distributed_lock(key = "k:{log.part(\"key\")}", ttl = log.ttl(), manager = log.manager())]
async fn evaluated(log: &Log, count: &Cell<u8>) -> Result<(), LockError> {
    count.set(count.get() + 1);
    log.note("body");
    Ok(())
}

#[tokio::test]
async fn the_key_comes_first_and_everything_once() {
    let log = Log::new();
    let count = Cell::new(0);
    let call = evaluated(&log, &count);
    assert!(log.0.lock().unwrap().is_empty(), "creating the future does nothing");
    call.await.unwrap();
    assert_eq!(log.taken(), ["key", "ttl", "manager", "body"]);
    assert_eq!(count.get(), 1);
}

//! D5: locks on several keys, in memory.

use std::sync::{Arc, Mutex};

use distlock::{LockError, LockManager};
use tokio::time::Instant;

use crate::support::{Counter, assert_free, ms, settle};

fn several(keys: &[&'static str]) -> Vec<&'static str> {
    keys.to_vec()
}

#[tokio::test(start_paused = true)]
async fn all_are_taken_or_none_and_the_error_names_the_one_that_was_held() {
    let locks = LockManager::in_memory();
    let held = locks.lock("b").acquire().await.unwrap();
    for wait in [0, 300] {
        let begun = Instant::now();
        let refused = locks.lock(several(&["c", "b", "a"])).wait(ms(wait)).acquire().await.unwrap_err();
        let LockError::Busy(busy) = refused else { panic!("{refused:?}") };
        assert_eq!((busy.key(), begun.elapsed()), ("b", ms(wait)));
        assert_free(&locks, "a").await;
        assert_free(&locks, "c").await;
    }
    held.release().await.unwrap();
    let lease = locks.lock(several(&["c", "b", "a", "b"])).acquire().await.unwrap();
    for key in ["a", "b", "c"] {
        assert!(locks.lock(key).try_acquire().await.unwrap().is_none(), "`{key}` is free");
    }
    lease.release().await.unwrap();
    for key in ["a", "b", "c"] {
        assert_free(&locks, key).await;
    }
}

#[tokio::test]
async fn none_at_all_and_a_blank_one_among_others_are_refused() {
    let locks = LockManager::in_memory();
    for keys in [&[][..], &["a", " "], &["", "a"]] {
        let error = locks.lock(several(keys)).acquire().await.unwrap_err();
        assert!(matches!(error, LockError::InvalidKey(_)), "{keys:?}: {error:?}");
    }
    assert_free(&locks, "a").await;
}

/// One budget for all of the keys, not one for each.
#[tokio::test(start_paused = true)]
async fn the_wait_is_one_budget() {
    let locks = LockManager::in_memory();
    let (a, b) = (locks.lock("a").acquire().await.unwrap(), locks.lock("b").acquire().await.unwrap());
    let waiting = tokio::spawn(locks.lock(several(&["a", "b"])).wait(ms(500)).around(async {}));
    tokio::time::sleep(ms(400)).await;
    a.release().await.unwrap();
    let begun = Instant::now();
    let LockError::Busy(busy) = waiting.await.unwrap().unwrap_err() else { panic!() };
    assert_eq!((busy.key(), begun.elapsed(), busy.waited()), ("b", ms(100), ms(500)));
    b.release().await.unwrap();
}

#[tokio::test]
async fn opposite_orders_never_wait_for_each_other() {
    let locks = LockManager::in_memory();
    let (inside, ran) = (Arc::new(Mutex::new(Vec::new())), Counter::default());
    let choices: [&[&'static str]; 5] = [&["a", "b"], &["b", "a"], &["c", "a"], &["a"], &["b"]];
    let mut tasks = Vec::new();
    for round in 0..200 {
        let (locks, inside, ran) = (locks.clone(), inside.clone(), ran.clone());
        let keys = choices[round % choices.len()];
        tasks.push(tokio::spawn(async move {
            let body = async |_: &distlock::Lease<distlock::Several>| {
                for key in keys {
                    assert!(!inside.lock().unwrap().contains(key), "`{key}` was let go twice");
                    inside.lock().unwrap().push(*key);
                }
                tokio::task::yield_now().await;
                inside.lock().unwrap().retain(|key| !keys.contains(key));
                ran.add();
            };
            let done = tokio::time::timeout(ms(10_000), locks.lock(several(keys)).wait_forever().run(body));
            done.await.expect("it hangs").unwrap();
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(ran.get(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_lock_on_several_keys_that_was_given_up_holds_up_nobody() {
    let locks = LockManager::in_memory();
    let held = locks.lock("b").acquire().await.unwrap();
    let waiting = tokio::spawn(locks.lock(several(&["a", "b"])).wait_forever().around(async {}));
    settle().await;
    let behind = tokio::spawn(locks.lock("a").wait(ms(1000)).around(async {}));
    settle().await;
    waiting.abort();
    behind.await.unwrap().unwrap();
    held.release().await.unwrap();
    assert_free(&locks, "b").await;
}

#[tokio::test(start_paused = true)]
async fn overlapping_keys_are_re_entrant_only_where_all_are_held() {
    let locks = LockManager::in_memory();
    let inside = async |_: &distlock::Lease<distlock::Several>| {
        let begun = Instant::now();
        for keys in [&["a"][..], &["b", "c"], &["a", "b"]] {
            let error = locks.lock(several(keys)).wait_forever().acquire().await.unwrap_err();
            assert!(matches!(error, LockError::Reentrant(_)), "{keys:?}: {error:?}");
        }
        let more = locks.lock(several(&["b", "c"])).reentrant(true).wait_forever().acquire().await;
        assert!(matches!(more.unwrap_err(), LockError::Reentrant(_)));
        locks.lock(several(&["b"])).reentrant(true).run(async |_| ()).await.unwrap();
        locks.lock(several(&["b", "a"])).reentrant(true).run(async |_| ()).await.unwrap();
        assert!(locks.lock("a").try_acquire().await.is_err());
        assert_eq!(begun.elapsed(), ms(0));
    };
    locks.lock(several(&["a", "b"])).run(inside).await.unwrap();
    assert_free(&locks, "a").await;
    assert_free(&locks, "b").await;
}

#[tokio::test]
async fn a_lock_inside_of_a_larger_one_sees_its_own_keys_with_their_tokens() {
    let locks = LockManager::in_memory();
    let inside = async |outer: &distlock::Lease<distlock::Several>| {
        let tokens: Vec<_> = outer.fencing_tokens().collect();
        let one = locks.lock("b").reentrant(true).acquire().await.unwrap();
        assert_eq!((one.key(), one.fencing_token()), tokens[1]);
        let turned = locks.lock(["c", "a"]).reentrant(true).acquire().await.unwrap();
        assert_eq!(turned.fencing_tokens().collect::<Vec<_>>(), [tokens[2], tokens[0]]);
    };
    locks.lock(["a", "b", "c"]).run(inside).await.unwrap();
}

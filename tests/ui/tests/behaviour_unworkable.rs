//! Declarations whose settings cannot work: no manager is built over them, before any call meets them.

use std::time::Duration;

use distlock::{LockError, LockKey, LockManager, assert_declarations, distributed_lock};

const TTL: Duration = Duration::from_secs(8);
const SHORT: Duration = Duration::from_secs(5);

#[distributed_lock(key = "inherits:{id}", max_hold = "10s")]
async fn below_the_default(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "constants:{id}", ttl = TTL, max_hold = SHORT)]
async fn below_a_constant(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "renewal:{id}", ttl = "5s", renew = SHORT)]
async fn renewed_too_late(id: u64) -> Result<(), LockError> {
    Ok(())
}

distlock::lock_set! { Slow { ttl = "15s" } }

#[derive(LockKey)]
#[lock(key = "slow:{id}", set = Slow, max_hold = "6s")]
struct SlowLock {
    id: u64,
}

/// The type has the ttl.
#[distributed_lock(SlowLock { id }, max_hold = "20s")]
async fn typed(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "computed:{id}", ttl = ttl, max_hold = "10s")]
async fn computed(id: u64, ttl: Duration) -> Result<(), LockError> {
    Ok(())
}

/// Its default may be shorter.
#[distributed_lock(key = "elsewhere:{id}", max_hold = "10s", manager = locks)]
async fn elsewhere(locks: &LockManager, id: u64) -> Result<(), LockError> {
    Ok(())
}

#[tokio::test]
async fn no_manager_is_built() {
    let built = LockManager::builder().url("memory:").build().await;
    let text = match built {
        Err(LockError::Config(refused)) => refused.to_string(),
        other => panic!("{other:?}"),
    };
    for part in ["cannot work", "::below_the_default` at", "`max_hold` (10s)", "3 more"] {
        assert!(text.contains(part), "{part}: {text}");
    }

    // By its own default, one of them works.
    let built = LockManager::builder().url("memory:").default_ttl(SHORT).build().await;
    let text = built.unwrap_err().to_string();
    assert!(text.contains("::below_a_constant` at") && text.contains("2 more"), "{text}");
}

#[tokio::test]
async fn the_calls_say_the_same() {
    let locks = LockManager::in_memory();
    distlock::scope(&locks, async {
        for refused in [below_the_default(1).await, below_a_constant(1).await, renewed_too_late(1).await] {
            assert!(matches!(refused, Err(LockError::Config(_))), "{refused:?}");
        }
        typed(1).await.unwrap();
        computed(1, SHORT).await.unwrap();
    })
    .await;
    assert!(matches!(locks.lock(SlowLock { id: 1 }).acquire().await, Err(LockError::Config(_))));
    assert!(matches!(elsewhere(&locks, 1).await, Err(LockError::Config(_))));
}

#[test]
fn the_one_line_test_lists_all() {
    let panic = std::panic::catch_unwind(assert_declarations).unwrap_err();
    let text = panic.downcast_ref::<String>().unwrap();
    assert_eq!(text.lines().count(), 5, "{text}");
    for name in ["below_the_default", "below_a_constant", "renewed_too_late", "SlowLock"] {
        assert!(text.contains(&format!("::{name}` at")), "{name}: {text}");
    }
}

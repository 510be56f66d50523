//! Declarations that contradict each other: no manager is built over them.

use distlock::{LockError, LockKey, LockManager, assert_declarations, distributed_lock};

#[distributed_lock(key = "order:{id}", ttl = "5s")]
async fn ship(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "order:{number}", ttl = "9s")]
async fn cancel(number: u64) -> Result<(), LockError> {
    Ok(())
}

/// An integer, so `report:nightly` is none of its keys.
#[distributed_lock(key = "report:{id}")]
async fn report(id: u32) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "report:nightly")]
async fn nightly() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "job:{name}")]
async fn job(name: &str) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "job:weekly")]
async fn weekly() -> Result<(), LockError> {
    Ok(())
}

distlock::lock_set! { Elsewhere { namespace = "elsewhere" } }

/// Another namespace, so another lock.
#[derive(LockKey)]
#[lock(key = "order:{id}", ttl = "7s", set = Elsewhere)]
struct OrderLock {
    id: u64,
}

/// One template with another prefix in each, and none of them makes `aa:nightly`.
mod prefixes {
    use super::*;

    pub(crate) struct A;
    pub(crate) struct B;

    impl A {
        const PREFIX: &str = "aa";

        #[distributed_lock(key = "{Self::PREFIX}:{id}", ttl = "5s")]
        pub(crate) async fn take(&self, id: &str) -> Result<(), LockError> {
            Ok(())
        }
    }

    const PREFIX: &str = "bb";

    impl B {
        #[distributed_lock(key = "{PREFIX}:{id}", ttl = "9s")]
        pub(crate) async fn take(&self, id: &str) -> Result<(), LockError> {
            Ok(())
        }
    }

    #[distributed_lock(key = "aa:nightly", ttl = "7s")]
    pub(crate) async fn nightly() -> Result<(), LockError> {
        Ok(())
    }
}

/// Two functions of one name and place, which differ in what the call of the macro gives them.
mod made {
    use super::*;

    pub(crate) struct A;
    pub(crate) struct B;

    macro_rules! made {
        ($($of:ident $ttl:literal)*) => {$(
            impl $of {
                #[distributed_lock(key = "twin:{id}", ttl = $ttl)]
                pub(crate) async fn take(&self, id: u64) -> Result<(), LockError> {
                    Ok(())
                }
            }
        )*};
    }

    made!(A "5s" B "9s");
}

/// Perhaps on another server.
#[distributed_lock(key = "order:{id}", ttl = "11s", manager = locks)]
async fn elsewhere(locks: &LockManager, id: u64) -> Result<(), LockError> {
    Ok(())
}

#[tokio::test]
async fn a_manager_names_both_places() {
    let refused = LockManager::builder().url("memory:").build().await.unwrap_err();
    assert!(matches!(refused, LockError::Config(_)));
    let text = refused.to_string();
    for part in ["`order:{}`", "`ttl` 5s", "9s", "::ship` at", "::cancel` at", "2 more"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("OrderLock"), "{text}");

    // In memory there is nobody else to contradict, and the functions work.
    let locks = LockManager::in_memory();
    distlock::scope(&locks, async {
        ship(1).await.unwrap();
        cancel(1).await.unwrap();
        report(1).await.unwrap();
        nightly().await.unwrap();
        job("a").await.unwrap();
        weekly().await.unwrap();
        made::A.take(1).await.unwrap();
        made::B.take(1).await.unwrap();
        prefixes::A.take("a").await.unwrap();
        prefixes::B.take("a").await.unwrap();
        prefixes::nightly().await.unwrap();
        elsewhere(&locks, 1).await.unwrap();
    })
    .await;
    assert!(locks.lock(OrderLock { id: 1 }).acquire().await.is_ok());
}

#[test]
fn the_one_line_test_lists_all() {
    let panic = std::panic::catch_unwind(assert_declarations).unwrap_err();
    let text = panic.downcast_ref::<String>().unwrap();
    assert_eq!(text.lines().count(), 4, "{text}");
    assert!(text.contains("`twin:{}` has `ttl` 5s") || text.contains("`twin:{}` has `ttl` 9s"), "{text}");
    assert!(text.contains("the key `job:weekly`") && text.contains("::job` at"), "{text}");
    assert!(!text.contains("report:nightly"), "{text}");
}

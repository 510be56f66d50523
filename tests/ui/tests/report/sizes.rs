//! How much larger the future of a function becomes.

use distlock::{LockError, LockManager, distributed_lock};

use crate::figure;

/// What a lock may add to a future besides a copy of the function's output.
const BUDGET: usize = 256;

macro_rules! both {
    ($($plain:ident $locked:ident ($($arg:tt)*) -> $output:ty $body:block)*) => {$(
        async fn $plain($($arg)*) -> Result<$output, LockError> $body

        #[distributed_lock(key = "k:{id}", ttl = "5s")]
        async fn $locked($($arg)*) -> Result<$output, LockError> $body
    )*};
}

both! {
    small small_locked (id: u64) -> u64 {
        tokio::task::yield_now().await;
        Ok(id)
    }
    references references_locked (id: &u64, name: &str) -> usize {
        tokio::task::yield_now().await;
        Ok(name.len() + usize::try_from(*id).unwrap_or(0))
    }
    large_local large_local_locked (id: u64) -> u8 {
        let local = [1_u8; 2048];
        tokio::task::yield_now().await;
        Ok(local[usize::try_from(id).unwrap_or(0)])
    }
    large_argument large_argument_locked (id: u64, argument: [u8; 1024]) -> u8 {
        tokio::task::yield_now().await;
        Ok(argument[usize::try_from(id).unwrap_or(0)])
    }
    large_output large_output_locked (id: u64) -> [u8; 512] {
        tokio::task::yield_now().await;
        Ok([u8::try_from(id).unwrap_or(0); 512])
    }
}

/// Gives nothing up before it ends, and takes the manager along.
#[distributed_lock(key = "k:{id}", ttl = "5s", manager = locks)]
async fn at_once_locked(locks: &LockManager, id: u64) -> Result<u64, LockError> {
    let _ = locks;
    Ok(id)
}

async fn at_once(locks: &LockManager, id: u64) -> Result<u64, LockError> {
    let _ = locks;
    Ok(id)
}

fn check<P, L, T>(name: &str, plain: P, locked: L)
where
    P: Future<Output = Result<T, LockError>>,
    L: Future<Output = Result<T, LockError>>,
{
    let (plain, locked) = (size_of_val(&plain), size_of_val(&locked));
    let most = plain + size_of::<Result<T, LockError>>() + BUDGET;
    figure(&format!("future of a function with {name}: {plain} B plain, {locked} B locked (to reach: {most} B)"));
    assert!(locked <= most, "{name}: {plain} became {locked}");
}

#[test]
fn a_lock_adds_little_to_a_future() {
    check("a small argument", small(1), small_locked(1));
    let locks = LockManager::in_memory();
    check("nothing to await", at_once(&locks, 1), at_once_locked(&locks, 1));
    check("references", references(&1, ""), references_locked(&1, ""));
    check("a large local", large_local(1), large_local_locked(1));
    check("a large argument", large_argument(1, [0; 1024]), large_argument_locked(1, [0; 1024]));
    check("a large output", large_output(1), large_output_locked(1));
}

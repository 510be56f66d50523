//! The parts of a call that need no server, each by itself: `cargo bench -p distlock-bench`.
//!
//! In memory a call goes through the same key, gate, watchdog and grant as on a server, and the store answers at once. What
//! the attribute's expansion costs at build is a line of the program, for only a compiler can say it.

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use distlock::{Lease, LockError, LockManager, distributed_lock};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

#[distributed_lock(key = "order:{id}", ttl = "10s", manager = locks)]
async fn pay(locks: &LockManager, id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = "shop:{shop}:order:{id:08}:{note}", ttl = "10s", manager = locks)]
async fn pay_with_a_long_key(locks: &LockManager, shop: &str, id: u64, note: &str) -> Result<u64, LockError> {
    let _ = (shop, note);
    Ok(id)
}

#[distributed_lock(key = "one", ttl = "10s", wait = forever, manager = locks)]
async fn hot(locks: &LockManager) -> Result<(), LockError> {
    Ok(())
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// A whole call: key, gate, grant, watchdog, body, release.
fn call(criterion: &mut Criterion) {
    let runtime = runtime();
    let locks = LockManager::in_memory();
    criterion.bench_function("call in memory", |bencher| {
        bencher.iter(|| runtime.block_on(pay(&locks, 7)).expect("nobody else wants it"));
    });
    criterion.bench_function("call in memory, long key with a value to be escaped", |bencher| {
        bencher.iter(|| {
            runtime.block_on(pay_with_a_long_key(&locks, "a:b", 7, "50 % off {now}")).expect("nobody else wants it")
        });
    });
}

/// The gate: 64 tasks pass one key round.
fn gate(criterion: &mut Criterion) {
    let runtime = runtime();
    let locks = LockManager::in_memory();
    criterion.bench_function("64 tasks pass one key round, in memory", |bencher| {
        bencher.iter(|| {
            runtime.block_on(async {
                let mut tasks = JoinSet::new();
                for _ in 0..64 {
                    let locks = locks.clone();
                    tasks.spawn(async move { hot(&locks).await });
                }
                while let Some(done) = tasks.join_next().await {
                    done.expect("no panic").expect("nobody else wants it");
                }
            });
        });
    });
}

/// The watchdog: one more lease beside ten thousand.
fn watchdog(criterion: &mut Criterion) {
    let runtime = runtime();
    let locks = LockManager::in_memory();
    let take = async |key: String| locks.lock(key).acquire().await.expect("nobody else wants it");
    let held: Vec<Lease> = runtime.block_on(async {
        let mut held = Vec::new();
        for number in 0..10_000 {
            held.push(take(format!("held:{number}")).await);
        }
        held
    });
    criterion.bench_function("lease and release beside 10,000 others, in memory", |bencher| {
        bencher.iter_batched(
            || "another".to_owned(),
            |key| runtime.block_on(async { take(key).await.release().await.expect("it is ours") }),
            BatchSize::SmallInput,
        );
    });
    runtime.block_on(async { drop(held) });
}

criterion_group!(parts, call, gate, watchdog);
criterion_main!(parts);

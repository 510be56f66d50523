//! Every refused value: its error, its way out, and nothing sent.

use std::time::Duration;

use distlock::{Builder, LockError, LockManager, Renew};

use crate::support::{assert_free, ms};

async fn config(builder: Builder) -> String {
    match builder.build().await {
        Err(LockError::Config(config)) => config.to_string(),
        other => panic!("not refused: {other:?}"),
    }
}

fn memory() -> Builder {
    LockManager::builder().url("memory:")
}

#[tokio::test]
async fn settings_of_a_manager_that_cannot_work_are_refused() {
    for (builder, word) in [
        (LockManager::builder(), "in_memory"),
        (memory().namespace(""), "namespace"),
        (memory().namespace("a b"), "namespace"),
        (memory().namespace("a{b}"), "namespace"),
        (memory().drift(-0.1), "drift"),
        (memory().drift(0.6), "drift"),
        (memory().drift(f64::NAN), "drift"),
        (memory().drift(f64::INFINITY), "drift"),
        (memory().max_ttl(ms(9)), "max_ttl"),
        (memory().max_ttl(Duration::MAX), "max_ttl"),
        (memory().default_ttl(Duration::ZERO), "default_ttl"),
        (memory().default_ttl(Duration::MAX), "default_ttl"),
        (memory().grace(Duration::MAX), "grace"),
        (memory().response_timeout(Duration::ZERO), "response_timeout"),
        (memory().connect_timeout(Duration::ZERO), "connect_timeout"),
        #[cfg(not(feature = "tls-rustls"))]
        (LockManager::builder().url("rediss://h:1"), "feature `tls-rustls` of the crate `distlock`"),
        (LockManager::builder().url("rediss://h:1#insecure"), ";"),
        (memory().replica_acks(1, ms(100)), "replica_acks"),
        (LockManager::builder().url("redlock:redis://a,redis://b,redis://c").replica_acks(1, ms(100)), "replica_acks"),
        (LockManager::builder().url("redis://h:1").replica_acks(0, ms(100)), "replica_acks"),
        (LockManager::builder().url("redis://h:1").replica_acks(1, ms(0)), "replica_acks"),
        (LockManager::builder().url("redis://h:1").replica_acks(1, Duration::MAX), "replica_acks"),
        #[cfg(not(feature = "cluster"))]
        (LockManager::builder().url("redis+cluster://h:1"), r#"features = ["cluster"]"#),
        #[cfg(not(feature = "sentinel"))]
        (LockManager::builder().url("redis+sentinel://h:1/m"), r#"features = ["sentinel"]"#),
        // Without the feature for that reason, with it because a cluster has one database.
        (LockManager::builder().url("redis+cluster://h:1/1"), "cluster"),
        (LockManager::builder().url("redis+sentinel://h:1"), "sentinel"),
        (LockManager::builder().url("redlock:redis://a,memory:"), "redlock"),
        (LockManager::builder().url("http://h:1"), "redis://"),
        (LockManager::builder().url("http://h:1"), "redlock:redis://a,redis://b"),
        (LockManager::builder().url("http://h:1"), "redis+cluster://"),
        (LockManager::builder().url("redlock:"), "redlock:redis://a,redis://b"),
        (LockManager::builder().url("redlock:redis://a,,redis://c"), "percent-encode `,`"),
        (LockManager::builder().url("redis://h1,h2"), "redis+sentinel://"),
        (LockManager::builder().url("redis://h:76O1"), "its port is not a number"),
        (LockManager::builder().url("redis://:p@ss/w#rd@h"), "percent-encode"),
        (LockManager::builder().url("redis://h:99999"), "percent-encode"),
    ] {
        let text = config(builder).await;
        assert!(text.contains(word), "{word}: {text}");
        assert!(text.contains(';'), "no way out: {text}");
        assert!(!text.contains("p@ss") && !text.contains("w#rd"), "{text}");
    }
}

#[tokio::test]
async fn a_missing_variable_says_what_to_set() {
    // The variable is not set in the environment of the tests; setting it here would need `unsafe`.
    if std::env::var_os("DISTLOCK_URL").is_some() {
        return;
    }
    let error = LockManager::from_env().await.unwrap_err();
    assert!(matches!(&error, LockError::Config(config) if config.to_string().contains("DISTLOCK_URL")), "{error}");
}

#[tokio::test]
async fn settings_of_a_lock_that_cannot_work_are_refused_and_take_nothing() {
    let locks = LockManager::builder().url("memory:").max_ttl(ms(60_000)).build().await.unwrap();
    let lock = || locks.lock("k");
    for lock in [
        lock().ttl(Duration::ZERO),
        lock().ttl(ms(9)),
        lock().ttl(ms(60_001)),
        lock().ttl(Duration::MAX),
        lock().ttl(ms(200)).renew(ms(101)),
        lock().ttl(ms(200)).renew(Duration::ZERO),
        lock().ttl(ms(200)).renew(Renew::Every(ms(200))),
        lock().ttl(ms(200)).max_hold(ms(199)),
        lock().ttl(ms(200)).max_hold(ms(500)).renew(Renew::Off),
        lock().min_hold(ms(60_001)),
        lock().min_hold(ms(50_000)).ttl(ms(200)).max_hold(ms(300)),
    ] {
        let text = format!("{lock:?}");
        let error = lock.acquire().await.unwrap_err();
        assert!(matches!(error, LockError::Config(_)), "{text}: {error:?}");
        assert!(error.to_string().contains(';'), "no way out: {error}");
        assert_free(&locks, "k").await;
    }
}

#[tokio::test]
async fn keys_that_name_nothing_are_refused() {
    let locks = LockManager::in_memory();
    for key in ["", " ", "\t\n", "a}b", "a\nb", "a\0"] {
        let error = locks.lock(key).acquire().await.unwrap_err();
        assert!(matches!(error, LockError::InvalidKey(_)), "{key:?}: {error:?}");
    }
    let long = "x".repeat(100_000);
    let lease = locks.lock(&long).acquire().await.unwrap();
    assert_eq!(lease.key(), long);
    assert!(locks.lock(&long).acquire().await.unwrap_err().to_string().len() < 400);
}

#[tokio::test(start_paused = true)]
async fn a_real_server_under_a_paused_clock_is_refused_with_advice() {
    let text = config(LockManager::builder().url("redis://127.0.0.1:1")).await;
    assert!(text.contains("paused") && text.contains("in_memory"), "{text}");
}

/// The first answer of a future that is polled outside of any runtime.
fn outside<F: Future>(future: F) -> Option<F::Output> {
    let mut future = std::pin::pin!(future);
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    match future.as_mut().poll(&mut cx) {
        std::task::Poll::Ready(output) => Some(output),
        std::task::Poll::Pending => None,
    }
}

#[test]
fn without_a_runtime_there_is_an_error_and_no_panic() {
    let locks = LockManager::in_memory();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (lease, other) = runtime
        .block_on(async { (locks.lock("a").acquire().await.unwrap(), locks.lock("b").acquire().await.unwrap()) });
    drop(runtime);
    let connected = LockManager::connect("redis://127.0.0.1:1");
    for refused in [
        outside(locks.lock("k").acquire()).unwrap().map(drop),
        outside(locks.lock("k").run(async |_| ())).unwrap(),
        outside(locks.lock("k").around(async {})).unwrap(),
        outside(connected).unwrap().map(drop),
        outside(lease.extend(ms(60_000))).unwrap(),
        outside(lease.release()).unwrap().map(drop),
    ] {
        let error = refused.unwrap_err();
        assert!(
            matches!(&error, LockError::Config(config) if config.to_string().contains("tokio runtime")),
            "{error:?}"
        );
    }
    let shutdown = outside(locks.shutdown(ms(1000))).unwrap();
    assert_eq!((shutdown.released, shutdown.left), (1, 0));
    assert!(!other.is_held());
}

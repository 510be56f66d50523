//! D2.7 and D2.10: the manager's own thread, whatever becomes of the user's runtime.

use distlock::{LossCause, Renew};
use distlock_testkit::server_or_skip;

use crate::support::{cause, exists, manager, ms, until};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn a_blocked_runtime_loses_no_lease() {
    let server = server_or_skip!();
    runtime().block_on(async {
        let locks = manager(&server).await;
        let out = locks
            .lock("k")
            .ttl(ms(300))
            .run(async |lease| {
                std::thread::sleep(ms(900));
                lease.ensure_held().map(|()| exists(&server, "distlock:k"))
            })
            .await;
        assert!(out.unwrap().unwrap());
        until("the key is gone", ms(1000), || !exists(&server, "distlock:k")).await;
    });
}

#[test]
fn max_hold_is_the_counterweight_to_a_blocked_runtime() {
    let server = server_or_skip!();
    runtime().block_on(async {
        let locks = manager(&server).await;
        let out = locks.lock("k").ttl(ms(200)).max_hold(ms(500)).run(async |_| std::thread::sleep(ms(900))).await;
        assert_eq!(cause(&out.unwrap_err()), LossCause::MaxHold);
        assert!(!exists(&server, "distlock:k"));
    });
}

#[test]
fn without_renewal_a_blocked_runtime_loses_its_lease_and_leaves_the_next_holder_alone() {
    let server = server_or_skip!();
    runtime().block_on(async {
        let (locks, other) = (manager(&server).await, manager(&server).await);
        let other_lease = std::sync::Mutex::new(None);
        let out = locks
            .lock("k")
            .ttl(ms(200))
            .renew(Renew::Off)
            .run(async |_| {
                std::thread::sleep(ms(600));
                let lease = std::thread::scope(|scope| {
                    let other = &other;
                    scope.spawn(move || runtime().block_on(other.lock("k").wait(ms(2000)).acquire())).join().unwrap()
                });
                *other_lease.lock().unwrap() = Some(lease.unwrap());
            })
            .await;
        assert!(out.unwrap_err().is_lost());
        let lease = other_lease.into_inner().unwrap().unwrap();
        tokio::time::sleep(ms(100)).await;
        assert!(lease.is_held() && exists(&server, "distlock:k"));
    });
}

#[test]
fn a_lease_may_be_dropped_wherever_there_is_no_runtime() {
    let server = server_or_skip!();
    let first = tokio::runtime::Runtime::new().unwrap();
    let locks = first.block_on(manager(&server));
    thread_local! {
        static LAST: std::cell::RefCell<Option<distlock::Lease>> = const { std::cell::RefCell::new(None) };
    }
    let take = |key: &'static str| first.block_on(locks.lock(key).ttl(ms(30_000)).acquire()).unwrap();
    let (in_thread, in_other_runtime, unwinding, at_thread_end) = (take("a"), take("b"), take("c"), take("d"));
    first.shutdown_background();
    std::thread::spawn(move || drop(in_thread)).join().unwrap();
    std::thread::spawn(move || LAST.set(Some(at_thread_end))).join().unwrap();
    let second = runtime();
    second.block_on(async move { drop(in_other_runtime) });
    let panicked = std::thread::spawn(move || {
        let _lease = unwinding;
        panic!("unwinding");
    });
    assert!(panicked.join().is_err());
    second.block_on(async {
        until("all keys are gone", ms(1000), || {
            !["distlock:a", "distlock:b", "distlock:c", "distlock:d"].iter().any(|key| exists(&server, key))
        })
        .await;
    });
    // The manager goes on in the runtime that is left.
    second.block_on(async { locks.lock("a").wait(ms(1000)).run(async |_| ()).await }).unwrap();
}

#[tokio::test]
async fn a_shutdown_frees_every_key_and_says_how_many() {
    let server = server_or_skip!();
    let locks = manager(&server).await;
    let by_hand = locks.lock("a").ttl(ms(30_000)).acquire().await.unwrap();
    std::mem::forget(locks.lock("b").ttl(ms(30_000)).acquire().await.unwrap());
    let body = tokio::spawn(locks.lock("c").ttl(ms(30_000)).around(std::future::pending::<()>()));
    until("the body runs", ms(1000), || exists(&server, "distlock:c")).await;
    let shutdown = locks.shutdown(ms(2000)).await;
    assert_eq!((shutdown.released, shutdown.left), (3, 0));
    for key in ["a", "b", "c"] {
        assert!(!exists(&server, &format!("distlock:{key}")), "{key}");
    }
    assert_eq!(cause(&by_hand.ensure_held().unwrap_err()), LossCause::Shutdown);
    assert_eq!(cause(&body.await.unwrap().unwrap_err()), LossCause::Shutdown);
}

#[tokio::test]
async fn a_shutdown_that_the_server_does_not_answer_says_what_is_left() {
    let server = server_or_skip!();
    let locks = crate::support::impatient(&server).build().await.unwrap();
    let _lease = locks.lock("a").ttl(ms(30_000)).acquire().await.unwrap();
    server.pause().unwrap();
    let shutdown = locks.shutdown(ms(300)).await;
    server.resume().unwrap();
    assert_eq!((shutdown.released, shutdown.left), (0, 1));
    until("the key is gone", ms(1000), || !exists(&server, "distlock:a")).await;
}

/// The threads of managers in this process.
fn threads() -> usize {
    let is_ours = |task: &std::fs::DirEntry| {
        std::fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.trim() == "distlock")
    };
    std::fs::read_dir("/proc/self/task").map_or(0, |tasks| tasks.filter_map(Result::ok).filter(is_ours).count())
}

/// Not a test of its own: what a process without other managers does.
#[tokio::test]
async fn lone_manager() {
    let Ok(url) = std::env::var("DISTLOCK_TEST_LONE_URL") else { return };
    let mut many = Vec::new();
    for _ in 0..20 {
        many.push(distlock::LockManager::connect(url.as_str()).await.unwrap());
    }
    let lease = many[0].lock("k").acquire().await.unwrap();
    // A thread has its name once it runs.
    until("the threads have begun", ms(5000), || threads() == 20).await;
    drop(many);
    until("the threads have ended", ms(5000), || threads() == 1).await;
    assert!(lease.is_held());
    drop(lease);
    until("the last thread has ended", ms(5000), || threads() == 0).await;
}

#[test]
fn the_last_clone_and_lease_end_the_manager_s_thread() {
    let server = server_or_skip!();
    let alone = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "runtimes::lone_manager", "--nocapture"])
        .env("DISTLOCK_TEST_LONE_URL", server.url())
        .output()
        .unwrap();
    assert!(alone.status.success(), "{}", String::from_utf8_lossy(&alone.stderr));
    assert!(!exists(&server, "distlock:k"));
}

#[test]
fn a_connection_attempt_on_a_runtime_that_nobody_runs_does_not_block_the_others() {
    let server = server_or_skip!();
    let idle = runtime();
    let locks = idle.block_on(crate::support::impatient(&server).lazy().build()).unwrap();
    server.pause().unwrap();
    assert!(idle.block_on(async { locks.lock("x").wait(ms(20)).acquire().await }).is_err());
    server.resume().unwrap();
    let got = runtime().block_on(async { locks.lock("k").wait(ms(2000)).acquire().await });
    drop(got.unwrap());
}

#[test]
fn an_extension_does_not_tie_the_renewals_to_the_user_s_runtime() {
    let server = server_or_skip!();
    runtime().block_on(async {
        let locks = manager(&server).await;
        let out = locks
            .lock("k")
            .ttl(ms(300))
            .run(async |lease| {
                tokio::select! {
                    biased;
                    extended = lease.extend(ms(300)) => extended.unwrap(),
                    () = std::future::ready(()) => {}
                }
                std::thread::sleep(ms(900));
                lease.ensure_held()
            })
            .await;
        out.unwrap().unwrap();
    });
}

#[test]
fn a_shutdown_waits_for_a_step_that_made_a_re_entrant_call() {
    let server = server_or_skip!();
    let locks = runtime().block_on(manager(&server));
    let (inside, entered) = std::sync::mpsc::channel();
    let (leave, left) = std::sync::mpsc::channel::<()>();
    let holder = locks.clone();
    let body = std::thread::spawn(move || {
        runtime().block_on(holder.lock("k").ttl(ms(30_000)).run(async |_| {
            holder.lock("k").reentrant(true).run(async |_| ()).await.unwrap();
            inside.send(()).unwrap();
            left.recv().unwrap();
        }))
    });
    entered.recv().unwrap();
    let shutdown = runtime().block_on(locks.shutdown(ms(300)));
    assert_eq!((shutdown.released, shutdown.left > 0), (0, true));
    assert!(exists(&server, "distlock:k"), "the key was given back in the middle of a step");
    leave.send(()).unwrap();
    assert!(body.join().unwrap().unwrap_err().is_lost());
    runtime().block_on(until("the key is gone", ms(1000), || !exists(&server, "distlock:k")));
}

#[tokio::test]
async fn nothing_begins_after_a_shutdown_although_it_was_asked_for_before() {
    let server = server_or_skip!();
    let locks = manager(&server).await;
    locks.lock("w").run(async |_| ()).await.unwrap();
    server.pause().unwrap();
    let body = tokio::spawn(locks.lock("k").wait(ms(5000)).around(async { panic!("it ran") }));
    let asking = locks.clone();
    let by_hand = tokio::spawn(async move { asking.lock("h").wait(ms(5000)).acquire().await });
    tokio::time::sleep(ms(50)).await;
    let shutdown = locks.shutdown(ms(100)).await;
    assert!(shutdown.left >= 2, "{shutdown:?}");
    server.resume().unwrap();
    let refused: Result<(), _> = body.await.unwrap();
    assert!(matches!(refused, Err(distlock::LockError::Closed(_))), "{refused:?}");
    assert!(matches!(by_hand.await.unwrap(), Err(distlock::LockError::Closed(_))));
    until("the keys are gone", ms(1000), || !exists(&server, "distlock:k") && !exists(&server, "distlock:h")).await;
}

#[tokio::test]
async fn a_shutdown_waits_for_a_release_that_somebody_awaits() {
    let server = server_or_skip!();
    let locks = manager(&server).await;
    let lease = locks.lock("k").ttl(ms(30_000)).acquire().await.unwrap();
    server.pause().unwrap();
    let releasing = tokio::spawn(lease.release());
    tokio::time::sleep(ms(50)).await;
    let shutdown = locks.shutdown(ms(100)).await;
    assert_eq!(shutdown.left, 1);
    server.resume().unwrap();
    locks.shutdown(ms(2000)).await;
    assert!(!exists(&server, "distlock:k"));
    drop(releasing.await);
}

//! D5 and D8 against a server: locks on several keys.

use distlock::{LockError, LossCause, Release};
use distlock_testkit::{History, Recorder, check, server_or_skip};

use crate::support::{ask, exists, manager, ms, nothing_is_left, queued, timed, until};

#[tokio::test]
async fn several_keys_cost_one_command_each_way_and_none_is_taken_while_one_is() {
    let server = server_or_skip!();
    let (locks, others) = (manager(&server).await, manager(&server).await);
    let all = || ["a", "b", "c"].into_iter().filter(|key| exists(&server, &format!("distlock:{key}"))).count();
    locks.lock("a").run(async |_| ()).await.unwrap();
    let mut log = server.monitor().unwrap();
    let lease = locks.lock(["c", "a", "b", "a"]).acquire().await.unwrap();
    assert_eq!(all(), 3);
    assert_eq!(lease.release().await.unwrap(), Release::Released);
    assert_eq!(log.sent().unwrap().len(), 2);
    assert_eq!(all(), 0);
    let held = others.lock("b").acquire().await.unwrap();
    for wait in [0, 300] {
        let refused = locks.lock(["c", "a", "b"]).wait(ms(wait)).acquire().await;
        let LockError::Busy(busy) = refused.unwrap_err() else { panic!() };
        assert_eq!((busy.key(), all()), ("b", 1));
    }
    let waiting = tokio::spawn(locks.lock(["c", "b"]).ttl(ms(30_000)).wait(ms(60_000)).around(async {}));
    queued(&server, "b", 1).await;
    held.release().await.unwrap();
    let (done, took) = timed(waiting).await;
    done.unwrap().unwrap();
    assert!(took < ms(1000), "{took:?}");
    nothing_is_left(&server).await;
}

#[tokio::test]
async fn one_stolen_key_takes_the_lease_and_the_others_are_given_back() {
    let server = server_or_skip!();
    let locks = manager(&server).await;
    let lease = locks.lock(["a", "b", "c"]).ttl(ms(900)).acquire().await.unwrap();
    ask(&server, &["SET", "distlock:b", "thief", "PX", "9000"]);
    let (lost, took) = timed(lease.lost()).await;
    assert_eq!((lost.cause(), lost.key()), (LossCause::Stolen, "b"));
    assert!(took < ms(600), "{took:?}");
    until("the rest is given back", ms(1000), || !exists(&server, "distlock:a") && !exists(&server, "distlock:c"))
        .await;
    assert_eq!(lease.release().await.unwrap(), Release::AlreadyLost);
    assert!(exists(&server, "distlock:b"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opposite_orders_never_wait_for_each_other() {
    const CHOICES: [&[&str]; 4] = [&["a", "b"], &["b", "a"], &["a"], &["c", "b"]];
    let server = server_or_skip!();
    let history = server.folder().join("history");
    let mut tasks = Vec::new();
    for process in 0..3 {
        let locks = manager(&server).await;
        for (task, keys) in CHOICES.iter().enumerate() {
            let (locks, keys) = (locks.clone(), *keys);
            let recorder = Recorder::open_as(&history, format!("{process}.{task}")).unwrap();
            tasks.push(tokio::spawn(async move {
                for number in 0..100 {
                    let wait = if number % 4 == 3 { ms(0) } else { ms(20_000) };
                    let body = async |lease: &distlock::Lease<distlock::Several>| {
                        let note = |key: &&str| {
                            let at = distlock_testkit::Moment::now().as_nanos();
                            recorder.granted(key, at, lease.remaining()).unwrap()
                        };
                        let holdings: Vec<_> = keys.iter().map(note).collect();
                        tokio::task::yield_now().await;
                        holdings.into_iter().for_each(|holding| holding.end().unwrap());
                    };
                    match locks.lock(keys).ttl(ms(5000)).wait(wait).run(body).await {
                        Ok(()) => {}
                        Err(LockError::Busy(_)) if wait.is_zero() => {}
                        Err(error) => panic!("{keys:?}: {error:?}"),
                    }
                }
            }));
        }
    }
    for task in tasks {
        task.await.unwrap();
    }
    let report = check(&History::read(&history).unwrap());
    report.assert_clean();
    assert!(report.grants() >= 3 * 75 * 7, "{}", report.grants());
    nothing_is_left(&server).await;
}

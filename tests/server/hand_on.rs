//! D8 against a server: keys that go on inside a process, between processes, and both.

use std::sync::{Arc, Mutex};

use distlock_testkit::{History, Recorder, check, server_or_skip};

use crate::support::{manager, ms, nothing_is_left, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_tasks_of_one_process_cost_the_server_far_less_than_two_commands_a_hold() {
    let server = server_or_skip!();
    let locks = manager(&server).await;
    locks.lock("k").run(async |_| ()).await.unwrap();
    let mut log = server.monitor().unwrap();
    let tokens = Arc::new(Mutex::new(Vec::new()));
    let tasks: Vec<_> = (0..64)
        .map(|_| {
            let (locks, tokens) = (locks.clone(), tokens.clone());
            tokio::spawn(async move {
                for _ in 0..20 {
                    let note = async |lease: &distlock::Lease| tokens.lock().unwrap().push(lease.fencing_token());
                    locks.lock("k").ttl(ms(5000)).wait(ms(60_000)).run(note).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let sent = log.sent().unwrap().len();
    let tokens = tokens.lock().unwrap().clone();
    assert_eq!(tokens.len(), 64 * 20);
    // A chain ends after 256 leases or 10 ms, whatever the machine is busy with.
    assert!(sent * 2 < tokens.len(), "{sent} commands for {} holds", tokens.len());
    assert!(tokens.is_sorted_by(|a, b| a < b), "tokens that do not rise");
    nothing_is_left(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_ways_of_going_on_together_let_nobody_in_beside_anybody() {
    let server = server_or_skip!();
    let history = server.folder().join("history");
    let mut tasks = Vec::new();
    for process in 0..4_u64 {
        let locks = manager(&server).await;
        let recorder = Recorder::open_as(&history, format!("process {process}")).unwrap();
        for task in 0..8_u64 {
            let (locks, recorder) = (locks.clone(), recorder.clone());
            tasks.push(tokio::spawn(async move {
                for number in 0..15 {
                    let body = async |lease: &distlock::Lease| {
                        let holding = recorder.granted("k", lease.fencing_token(), lease.remaining()).unwrap();
                        tokio::time::sleep(ms((task + number) % 3)).await;
                        holding.end().unwrap();
                    };
                    locks.lock("k").ttl(ms(2000 + 300 * (task % 3))).wait(ms(60_000)).run(body).await.unwrap();
                }
            }));
        }
    }
    for task in tasks {
        task.await.unwrap();
    }
    let report = check(&History::read(&history).unwrap());
    report.assert_clean();
    assert_eq!((report.grants(), report.processes()), (4 * 8 * 15, 4));
    nothing_is_left(&server).await;
}

#[tokio::test]
async fn an_heir_that_is_not_polled_loses_the_key_to_another_process() {
    let server = server_or_skip!();
    let (locks, others) = (manager(&server).await, manager(&server).await);
    for _ in 0..10 {
        let first = locks.lock("k").ttl(ms(30_000)).acquire().await.unwrap();
        let second = tokio::spawn(locks.lock("k").ttl(ms(30_000)).wait(ms(60_000)).around(async {}));
        // In this order at the gate.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        let mut heir = Box::pin(locks.lock("k").ttl(ms(30_000)).wait(ms(60_000)).acquire());
        for _ in 0..100 {
            tokio::select! {
                biased;
                _ = &mut heir => panic!("it did not have to wait"),
                () = tokio::task::yield_now() => {}
            }
        }
        first.release().await.unwrap();
        second.await.unwrap().unwrap();
        // Nobody polls the heir now. Another process gets the key long before its ttl.
        let begun = std::time::Instant::now();
        let other = others.lock("k").ttl(ms(30_000)).wait(ms(60_000)).acquire().await.unwrap();
        assert!(begun.elapsed() < ms(1000), "{:?}", begun.elapsed());
        let token = other.fencing_token();
        other.release().await.unwrap();
        let late = heir.await.unwrap();
        assert!(late.fencing_token() > token);
        late.release().await.unwrap();
    }
    until("it is free", ms(1000), || !crate::support::exists(&server, "distlock:k")).await;
    nothing_is_left(&server).await;
}

//! What the doctor sees of a server's clock, which a real server's tests cannot set.

use distlock::{FindingKind, LockManager, Severity};

use crate::support::{ms, node, on};

async fn clock_findings(locks: &LockManager) -> Vec<FindingKind> {
    let clocks = [FindingKind::ClockRate, FindingKind::ClockJump, FindingKind::ClocksApart];
    let found = locks.doctor().await.unwrap();
    found.iter().map(distlock::Finding::kind).filter(|kind| clocks.contains(kind)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_clock_at_another_rate_is_told_where_it_uses_up_the_drift() {
    let node = node();
    let locks = on(&node).build().await.unwrap();
    let careful = on(&node).drift(0.1).build().await.unwrap();
    assert_eq!(clock_findings(&locks).await, []);
    for ppm in [20_000, -20_000] {
        node.clock().set_rate(ppm);
        assert_eq!(clock_findings(&locks).await, [FindingKind::ClockRate], "{ppm}");
        assert_eq!(clock_findings(&careful).await, [], "{ppm}");
    }
    node.clock().set_rate(1_000);
    assert_eq!(clock_findings(&locks).await, []);
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_was_set_between_two_looks_is_told() {
    let node = node();
    let locks = on(&node).build().await.unwrap();
    assert_eq!(clock_findings(&locks).await, []);
    tokio::time::sleep(ms(60_000)).await;
    assert_eq!(clock_findings(&locks).await, []);
    node.clock().step_forward(ms(5_000));
    let found = locks.doctor().await.unwrap();
    let jump = found.iter().find(|finding| finding.kind() == FindingKind::ClockJump).unwrap();
    assert_eq!(jump.severity(), Severity::Warning);
    assert!(jump.what().contains("+5.0 s"), "{jump}");
}

#[tokio::test(start_paused = true)]
async fn clocks_of_two_servers_that_differ_are_told() {
    let nodes = [node(), node(), node()];
    nodes[1].clock().step_back(ms(3_000));
    let mut builder = LockManager::builder();
    for node in nodes.clone() {
        builder = builder.server_streams(move || {
            let stream = node.connect();
            async move { Ok(stream) }
        });
    }
    let locks = builder.build().await.unwrap();
    // The second beside the first, and the third beside the second.
    assert_eq!(clock_findings(&locks).await, [FindingKind::ClocksApart, FindingKind::ClocksApart]);
}

//! The cluster of the kit does what its users count on.

use distlock_testkit::{Error, cluster_or_skip};

#[test]
fn slots_move_and_a_replica_takes_over() {
    let cluster = cluster_or_skip!();
    cluster.command("k", &["SET", "k", "v"]).unwrap();
    let (from, to) = (cluster.primary_of("k").unwrap(), cluster.other_primary("k").unwrap());
    let migration = cluster.migrate("k", to).unwrap();
    assert_eq!(from.command(&["GET", "k"]).unwrap().as_text(), Some("v"));
    migration.move_key("k").unwrap();
    let Err(Error::Refused(asks)) = from.command(&["GET", "k"]) else { panic!("the key is still there") };
    assert!(asks.starts_with("ASK "), "{asks}");
    migration.finish().unwrap();
    assert_eq!(cluster.primary_of("k").unwrap().port(), to.port());

    let replica = cluster.replica_of("k").unwrap();
    to.kill().unwrap();
    cluster.settle().unwrap();
    assert_eq!(cluster.primary_of("k").unwrap().port(), replica.port());
    assert_eq!(cluster.command("k", &["GET", "k"]).unwrap().as_text(), Some("v"));
    to.restart_empty().unwrap();
    cluster.settle().unwrap();
    assert_eq!(cluster.replica_of("k").unwrap().port(), to.port());
}

//! The kit's primary, replicas and Sentinels: they agree, fail over, and come back.

use distlock_testkit::{Error, Reply, SentinelSet, sentinels_or_skip};

fn text(reply: &str) -> Reply {
    Reply::Text(reply.to_owned())
}

#[test]
fn a_killed_primary_is_replaced_and_comes_back_as_a_replica() {
    let set = sentinels_or_skip!();
    let old = set.primary().unwrap();
    assert_eq!(set.nodes().len(), 3);
    assert_eq!(set.replicas().unwrap().len(), 2);
    old.command(&["SET", "k", "v"]).unwrap();
    old.command(&["WAIT", "2", "5000"]).unwrap();
    old.kill().unwrap();
    let new = set.wait_for_failover(old).unwrap();
    assert_ne!(new.port(), old.port());
    assert_eq!(new.command(&["GET", "k"]).unwrap(), text("v"));
    new.command(&["SET", "k", "w"]).unwrap();

    set.rejoin(old).unwrap();
    set.wait_until_stable().unwrap();
    assert_eq!(set.primary().unwrap().port(), new.port());
    assert_eq!(old.command(&["GET", "k"]).unwrap(), text("w"));
}

#[test]
fn a_primary_is_demoted_in_place_and_dead_sentinels_do_not_stop_it() {
    let set = sentinels_or_skip!(SentinelSet::builder().password("data1").sentinel_password("guard1"));
    let (old, dead) = (set.primary().unwrap(), &set.sentinels()[0]);
    dead.kill().unwrap();
    set.demote_primary().unwrap();
    let new = set.wait_for_failover(old).unwrap();
    set.wait_until_stable().unwrap();
    let refused = old.command(&["SET", "k", "v"]);
    assert!(matches!(&refused, Err(Error::Refused(text)) if text.starts_with("READONLY")), "{refused:?}");
    set.restart_sentinel(dead).unwrap();
    set.wait_until_stable().unwrap();
    assert_eq!(set.primary().unwrap().port(), new.port());
    let url = set.url();
    assert!(
        url.starts_with("redis+sentinel://:data1@127.0.0.1:") && url.ends_with("/mymaster?sentinel_password=guard1")
    );
}

//! The Lua scripts by themselves: what a command does that is repeated, late, or meant for somebody else.

use distlock_testkit::{Reply, Server, server_or_skip};

use crate::support::ask;

const ACQUIRE: &str = concat!(
    include_str!("../../distlock-runtime/src/store/redis/lua/queue.lua"),
    include_str!("../../distlock-runtime/src/store/redis/lua/acquire.lua")
);
const RENEW: &str = include_str!("../../distlock-runtime/src/store/redis/lua/renew.lua");
const RELEASE: &str = concat!(
    include_str!("../../distlock-runtime/src/store/redis/lua/queue.lua"),
    include_str!("../../distlock-runtime/src/store/redis/lua/release.lua")
);

const A: &str = "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa";
const B: &str = "bbbbbbbb-bbbb-4bbb-8bbb-bbbbbbbbbbbb";

/// The first word of the answer, and the second part.
fn acquire(server: &Server, token: &str, expiry: &str) -> (String, Reply) {
    let gone = format!("{{k}}:gone:{token}");
    let keys = ["k", "{k}:queue", "{k}:waiters", &gone, "{k}:fence"];
    let reply = ask(server, &[&["EVAL", ACQUIRE, "5"], &keys[..], &[token, expiry, "host/1 f", "1"]].concat());
    if reply.as_int().is_some() {
        return ("granted".to_owned(), reply);
    }
    let Reply::List(mut parts) = reply else { panic!("{reply:?}") };
    let Reply::Text(word) = parts.remove(0) else { panic!("{parts:?}") };
    (word, if parts.is_empty() { Reply::Nil } else { parts.remove(0) })
}

fn release(server: &Server, token: &str, keep: &str, bury: &str) -> Option<i64> {
    let gone = format!("{{k}}:gone:{token}");
    let reply = ask(server, &["EVAL", RELEASE, "4", "k", "{k}:queue", "{k}:waiters", &gone, token, keep, bury]);
    let Reply::List(answers) = reply else { panic!("{reply:?}") };
    answers[0].as_int()
}

fn renew(server: &Server, token: &str, expiry: &str) -> Reply {
    ask(server, &["EVAL", RENEW, "1", "k", token, expiry])
}

fn left(server: &Server) -> i64 {
    ask(server, &["PTTL", "k"]).as_int().unwrap()
}

#[test]
fn an_acquisition_that_is_sent_again_is_granted_again_with_the_same_fencing_token() {
    let server = server_or_skip!();
    let first = acquire(&server, A, "10000");
    assert_eq!(first.0, "granted");
    ask(&server, &["PEXPIRE", "k", "1000"]);
    assert_eq!(acquire(&server, A, "10000"), first);
    assert!(left(&server) > 9000, "the repeat counts from its own sending, so the key must live as long");
    assert_eq!(acquire(&server, B, "10000").0, "held");
}

#[test]
fn a_repeat_with_a_shorter_ttl_does_not_shorten_the_key_s_life() {
    let server = server_or_skip!();
    acquire(&server, A, "10000");
    acquire(&server, A, "1000");
    assert!(left(&server) > 9000);
}

#[test]
fn a_copy_of_an_acquisition_that_comes_after_its_release_is_refused() {
    let server = server_or_skip!();
    // The release overtakes the acquisition altogether.
    assert_eq!(release(&server, A, "0", "60000"), Some(0));
    assert_eq!(acquire(&server, A, "10000").0, "dead");
    // Another attempt is none of its business.
    assert_eq!(acquire(&server, B, "10000").0, "granted");
    assert_eq!(release(&server, B, "0", "60000"), Some(1));
    assert_eq!(acquire(&server, B, "10000").0, "dead");
    assert!(ask(&server, &["PTTL", &format!("{{k}}:gone:{B}")]).as_int().unwrap() > 50_000);
}

#[test]
fn a_release_deletes_only_its_own_key_however_often_it_is_sent() {
    let server = server_or_skip!();
    acquire(&server, A, "10000");
    assert_eq!(release(&server, B, "0", "0"), Some(-1));
    assert_eq!(release(&server, A, "0", "0"), Some(1));
    assert_eq!(release(&server, A, "0", "0"), Some(0));
    acquire(&server, B, "10000");
    assert_eq!(release(&server, A, "0", "0"), Some(-1));
    assert!(left(&server) > 9000);
}

#[test]
fn a_renewal_creates_nothing_shortens_nothing_and_touches_nobody_else_s_key() {
    let server = server_or_skip!();
    let answer = |number| Reply::List(vec![Reply::Int(number)]);
    assert_eq!(renew(&server, A, "10000"), answer(0));
    assert_eq!(ask(&server, &["EXISTS", "k"]).as_int(), Some(0));
    acquire(&server, A, "10000");
    assert_eq!(renew(&server, A, "500"), answer(1));
    assert!(left(&server) > 9000);
    assert_eq!(renew(&server, A, "20000"), answer(1));
    assert!(left(&server) > 19_000);
    assert_eq!(renew(&server, B, "90000"), answer(-1));
    assert!(left(&server) < 21_000);
    ask(&server, &["DEL", "k"]);
    ask(&server, &["RPUSH", "k", "x"]);
    assert_eq!(renew(&server, A, "10000"), answer(-1));
}

#[test]
fn a_kept_key_belongs_to_nobody_not_even_to_its_last_holder() {
    let server = server_or_skip!();
    acquire(&server, A, "10000");
    assert_eq!(release(&server, A, "5000", "0"), Some(1));
    assert!((4000..=5000).contains(&left(&server)));
    assert_eq!(renew(&server, A, "90000"), Reply::List(vec![Reply::Int(-1)]));
    assert_eq!(release(&server, A, "0", "0"), Some(-1));
    assert_eq!(acquire(&server, A, "10000").0, "held");
    assert!(left(&server) <= 5000);
}

#[test]
fn a_release_with_a_burial_works_on_a_server_without_memory() {
    let server = server_or_skip!();
    acquire(&server, A, "10000");
    ask(&server, &["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(release(&server, B, "0", "60000"), Some(-1));
    assert_eq!(release(&server, A, "3000", "60000"), Some(1));
    assert_eq!(release(&server, A, "0", "60000"), Some(-1));
}

#[test]
fn a_counter_far_ahead_of_the_clock_reserves_nothing_that_may_not_be_used() {
    let server = server_or_skip!();
    let gone = format!("{{k}}:gone:{A}");
    let keys = ["k", "{k}:queue", "{k}:waiters", &gone, "{k}:fence"];
    let parts = [&["EVAL", ACQUIRE, "5"], &keys[..], &[A, "10000", "host/1 f", "8"]].concat();
    let granted = ask(&server, &parts).as_int().unwrap();
    let counter = || ask(&server, &["GET", "{k}:fence"]).as_text().unwrap().parse::<i64>().unwrap();
    assert_eq!(counter(), granted + 7);
    let ahead = granted + 3_000_000;
    ask(&server, &["SET", "{k}:fence", &ahead.to_string()]);
    ask(&server, &["DEL", "k"]);
    let Reply::List(answer) = ask(&server, &parts) else { panic!("the tokens are reserved all the same") };
    assert_eq!(answer[1].as_text().unwrap(), (ahead + 1).to_string());
    assert_eq!(counter(), ahead + 1);
}

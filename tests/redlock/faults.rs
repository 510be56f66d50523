//! One server of several is away, late, or says something else; and what becomes of what was left there.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use distlock::{LockError, LossCause, Release, Renew};
use distlock_testkit::{EmbeddedServer, Fault, Match, Refusal};
use tokio::time::{Instant, sleep, timeout};

use crate::support::{BOOTSTRAP, HEAL, RELEASE, RENEW, VOTE, comes_to_stand, manager, ms, on, servers, stands};

/// Has the servers refuse what fits.
fn refuse(servers: &[Arc<EmbeddedServer>], matches: &Match) {
    for server in servers {
        server.inject(matches.clone(), Fault::Refuse(Refusal::Loading));
    }
}

/// Whose the key is on this server.
fn token(server: &EmbeddedServer, key: &str) -> Option<String> {
    let value = server.command(&["GET", &format!("distlock:{key}")]).unwrap();
    value.as_text().map(|value| value[..36].to_owned())
}

/// How long the key lives on, as this server sees it.
fn life(server: &EmbeddedServer, key: &str) -> Duration {
    let left = server.command(&["PTTL", &format!("distlock:{key}")]).unwrap().as_int().unwrap();
    ms(u64::try_from(left).unwrap_or(0))
}

#[tokio::test(start_paused = true)]
async fn a_frozen_server_delays_nobody_and_is_cleaned_when_it_thaws() {
    let servers = servers(3);
    let locks = manager(&servers).await;
    locks.lock("warm").run(async |_| ()).await.unwrap();
    sleep(ms(10)).await;
    servers[1].freeze();
    for round in 0..50 {
        let begun = Instant::now();
        let lease = locks.lock(format!("k{round}")).ttl(ms(60_000)).acquire().await.unwrap();
        assert_eq!(lease.release().await.unwrap(), Release::Released);
        assert_eq!(begun.elapsed(), ms(0), "round {round}");
    }
    sleep(ms(3000)).await;
    servers[1].thaw();
    for round in 0..50 {
        comes_to_stand(&servers, &format!("k{round}"), 0, ms(2000)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn of_five_one_that_cannot_be_reached_and_one_that_is_slow_delay_nobody() {
    let servers = servers(5);
    // Where nothing answers, not even a refusal.
    let builder =
        on(&servers[..4].to_vec()).server_streams(std::future::pending::<std::io::Result<tokio::io::DuplexStream>>);
    let locks = builder.build().await.unwrap();
    locks.lock("warm").run(async |_| ()).await.unwrap();
    sleep(ms(10)).await;
    servers[0].inject(Match::every(), Fault::DelayReply(ms(2000)));
    for round in 0..100 {
        let begun = Instant::now();
        let lease = locks.lock(format!("k{round}")).ttl(ms(60_000)).acquire().await.unwrap();
        assert_eq!(lease.release().await.unwrap(), Release::Released);
        assert_eq!(begun.elapsed(), ms(0), "round {round}");
    }
    sleep(ms(5000)).await;
    for round in 0..100 {
        assert_eq!(stands(&servers, &format!("k{round}")), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_put_on_a_server_that_was_away_and_then_bears_the_loss_of_another() {
    let servers = servers(3);
    let locks = manager(&servers).await;
    servers[0].stop();
    let lease = locks.lock("k").ttl(ms(3000)).acquire().await.unwrap();
    assert_eq!(stands(&servers[1..].to_vec(), "k"), 2);
    servers[0].start(false);
    sleep(ms(1500)).await;
    assert_eq!(stands(&servers, "k"), 3);
    servers[1].stop();
    sleep(ms(10_000)).await;
    assert!(lease.is_held());
    let other = manager(&servers).await;
    assert!(other.lock("k").try_acquire().await.unwrap().is_none());
    lease.release().await.unwrap();
    servers[1].start(true);
    comes_to_stand(&servers, "k", 0, ms(5000)).await;
}

#[tokio::test(start_paused = true)]
async fn a_bare_quorum_heals_at_once() {
    let servers = servers(3);
    let locks = manager(&servers).await;
    locks.lock("warm").run(async |_| ()).await.unwrap();
    servers[2].inject(Match::nth(1).script(VOTE), Fault::Refuse(Refusal::Loading));
    // Without it the first renewal would come after 10 s.
    let lease = locks.lock("k").ttl(ms(30_000)).acquire().await.unwrap();
    comes_to_stand(&servers, "k", 3, ms(100)).await;
    lease.release().await.unwrap();
    comes_to_stand(&servers, "k", 0, ms(10)).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_healed_without_a_good_renewal() {
    let servers = servers(3);
    let locks = manager(&servers).await;
    let lease = locks.lock("k").ttl(ms(3000)).acquire().await.unwrap();
    sleep(ms(1)).await;
    servers[0].command(&["DEL", "distlock:k"]).unwrap();
    servers[1].inject(Match::every().script(RENEW), Fault::Refuse(Refusal::Loading));
    sleep(ms(1500)).await;
    assert_eq!(stands(&servers, "k"), 2);
    assert_eq!(servers[0].log().iter().filter(|seen| seen.parts[1] == HEAL).count(), 0);
    assert!(lease.is_held());
    servers[1].clear();
    sleep(ms(1000)).await;
    assert_eq!(stands(&servers, "k"), 3);
}

#[tokio::test(start_paused = true)]
async fn a_key_whose_neighbour_could_not_be_healed_is_given_back_as_well() {
    let servers = servers(3);
    let locks = manager(&servers).await;
    let lease = locks.lock(["a", "b"]).ttl(ms(3000)).acquire().await.unwrap();
    sleep(ms(1)).await;
    servers[2].command(&["DEL", "distlock:b"]).unwrap();
    let heal = servers[2].inject(Match::every().script(HEAL), Fault::Refuse(Refusal::Oom));
    sleep(ms(1500)).await;
    assert!(heal.hits() > 0 && lease.is_held());
    lease.release().await.unwrap();
    comes_to_stand(&servers, "a", 0, ms(10)).await;
}

#[tokio::test(start_paused = true)]
async fn clocks_that_are_set_back_by_hours_stop_nobody() {
    let servers = servers(3);
    let locks = manager(&servers).await;
    let mut last = locks.lock("k").acquire().await.unwrap().fencing_token();
    for back in [2, 200] {
        servers[..2].iter().for_each(|server| server.clock().step_back(Duration::from_secs(back * 3600)));
        sleep(ms(10)).await;
        let lease = locks.lock("k").acquire().await.unwrap();
        assert!(lease.fencing_token() > last);
        last = lease.fencing_token();
        lease.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn renewals_that_one_or_two_of_five_refuse_keep_the_lease_and_it_is_put_there_again() {
    for refusing in [1, 2] {
        let servers = servers(5);
        let (locks, other) = (manager(&servers).await, manager(&servers).await);
        let lease = locks.lock("k").ttl(ms(3000)).acquire().await.unwrap();
        comes_to_stand(&servers, "k", 5, ms(10)).await;
        // Once: the next renewal prolongs the key there as well.
        refuse(&servers[..refusing], &Match::nth(1).script(RENEW));
        sleep(ms(1500)).await;
        assert!(servers[..refusing].iter().all(|server| life(server, "k") <= ms(1500)), "{refusing} refused nothing");
        assert!(servers[refusing..].iter().all(|server| life(server, "k") > ms(1500)));
        sleep(ms(1000)).await;
        assert!(servers.iter().all(|server| life(server, "k") > ms(1500)), "not renewed where it was refused");
        // For longer than the key lives there.
        refuse(&servers[..refusing], &Match::every().script(RENEW));
        sleep(ms(10_000)).await;
        assert_eq!(stands(&servers, "k"), 5 - refusing);
        assert!(lease.is_held());
        assert!(other.lock("k").try_acquire().await.unwrap().is_none());
        // What it got where the key had ended.
        comes_to_stand(&servers, "k", 5 - refusing, ms(10)).await;
        servers.iter().for_each(|server| server.clear());
        comes_to_stand(&servers, "k", 5, ms(1500)).await;
        // So it bears the loss of two others.
        servers[3..].iter().for_each(|server| server.stop());
        sleep(ms(10_000)).await;
        assert!(lease.is_held());
        lease.release().await.unwrap();
        comes_to_stand(&servers[..3].to_vec(), "k", 0, ms(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_extend_that_one_or_two_of_five_refuse_counts_and_one_that_three_refuse_does_not() {
    for refusing in 1..=3 {
        let servers = servers(5);
        let (locks, other) = (manager(&servers).await, manager(&servers).await);
        let lease = locks.lock("k").ttl(ms(3000)).renew(Renew::Off).acquire().await.unwrap();
        comes_to_stand(&servers, "k", 5, ms(10)).await;
        refuse(&servers[..refusing], &Match::every().script(RENEW));
        let extended = lease.extend(ms(60_000)).await;
        assert!(servers[..refusing].iter().all(|server| life(server, "k") <= ms(3000)));
        if refusing == 3 {
            let refused = extended.unwrap_err();
            assert!(matches!(refused, LockError::Unavailable(_)), "{refused:?}");
            assert!(lease.is_held() && lease.remaining() < ms(3000), "{:?}", lease.remaining());
            continue;
        }
        extended.unwrap();
        assert!(lease.remaining() > ms(59_000), "{:?}", lease.remaining());
        // Where it was refused the key ends; the others keep everybody out.
        sleep(ms(10_000)).await;
        assert_eq!(stands(&servers, "k"), 5 - refusing);
        assert!(lease.is_held());
        assert!(other.lock("k").try_acquire().await.unwrap().is_none());
        comes_to_stand(&servers, "k", 5 - refusing, ms(10)).await;
        // The next one puts it there again.
        servers.iter().for_each(|server| server.clear());
        lease.extend(ms(60_000)).await.unwrap();
        comes_to_stand(&servers, "k", 5, ms(10)).await;
        lease.release().await.unwrap();
        comes_to_stand(&servers, "k", 0, ms(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_clock_of_one_of_five_that_jumps_lets_nobody_else_in_and_keeps_the_lease() {
    type Jump = fn(&EmbeddedServer);
    let jumps: [(&str, Jump); 2] = [
        ("a day ahead", |server| server.clock().step_forward(Duration::from_secs(86_400))),
        ("an hour back", |server| server.clock().step_back(Duration::from_secs(3600))),
    ];
    for (jump, happens) in jumps {
        for jumping in 0..5 {
            let what = format!("server {jumping} jumps {jump}");
            let servers = servers(5);
            let (locks, other) = (manager(&servers).await, manager(&servers).await);
            let lease = locks.lock("k").ttl(ms(3000)).acquire().await.unwrap();
            comes_to_stand(&servers, "k", 5, ms(10)).await;
            happens(&servers[jumping]);
            let left = if jump == "a day ahead" { 4 } else { 5 };
            assert_eq!(stands(&servers, "k"), left, "{what}");
            let begun = Instant::now();
            while begun.elapsed() < ms(9000) {
                let refused = other.lock("k").wait(ms(500)).acquire().await.unwrap_err();
                assert!(refused.is_busy(), "{what}: {refused}");
                assert!(lease.is_held(), "{what}");
            }
            sleep(ms(1500)).await;
            let tokens: BTreeSet<_> = servers.iter().map(|server| token(server, "k")).collect();
            assert!(tokens.len() == 1 && !tokens.contains(&None), "{what}: {tokens:?}");
            let last = lease.fencing_token();
            lease.release().await.unwrap();
            let next = other.lock("k").wait(ms(1000)).acquire().await.unwrap();
            assert!(next.fencing_token() > last, "{what}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_without_a_majority_is_lost_and_leaves_nothing() {
    let servers = servers(3);
    let locks = manager(&servers).await;
    let lease = locks.lock("k").ttl(ms(60_000)).acquire().await.unwrap();
    sleep(ms(1)).await;
    for server in &servers[..2] {
        server.command(&["DEL", "distlock:k"]).unwrap();
    }
    let lost = timeout(ms(20_100), lease.lost()).await.unwrap();
    assert_eq!(lost.cause(), LossCause::Deleted);
    // On the third it would have lived for another 40 s.
    comes_to_stand(&servers, "k", 0, ms(100)).await;
}

#[tokio::test(start_paused = true)]
async fn a_round_that_failed_does_not_stand_in_the_way_of_the_next() {
    let servers = servers(3);
    let locks = manager(&servers).await;
    locks.lock("warm").run(async |_| ()).await.unwrap();
    // Two refuse for a while. Each round is granted on the third, and cannot be given back there.
    for server in &servers[..2] {
        server.inject(Match::every().script(VOTE), Fault::Refuse(Refusal::Loading));
    }
    let third = servers[2].inject(Match::every().script(RELEASE), Fault::Refuse(Refusal::Loading));
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.lock("k").ttl(ms(60_000)).wait(ms(20_000)).acquire().await }
    });
    sleep(ms(1000)).await;
    assert!(third.hits() > 0);
    // Now one answers again: with the third it is a majority, if what the round before left there does not count.
    servers[0].clear();
    let begun = Instant::now();
    let lease = waiting.await.unwrap().unwrap();
    assert!(begun.elapsed() <= ms(600), "{:?}", begun.elapsed());
    assert!(lease.is_held());
}

#[tokio::test(start_paused = true)]
async fn dropped_at_every_step_nothing_stays() {
    for latency in [0, 1, 3] {
        for steps in 0..40 {
            let servers = servers(3);
            let locks = manager(&servers).await;
            locks.lock("warm").run(async |_| ()).await.unwrap();
            sleep(ms(5)).await;
            for (number, server) in servers.iter().enumerate() {
                let late = latency * (u64::try_from(number).unwrap() + 1);
                server.inject(Match::every().command("EVALSHA"), Fault::DelayCommand(ms(late)));
            }
            let acquiring = locks.lock("k").ttl(ms(60_000)).wait(ms(1000)).acquire();
            if latency == 0 {
                distlock_testkit::dropped_after(steps as usize, acquiring).await;
            } else {
                let _ = timeout(Duration::from_micros(250) * steps, acquiring).await;
            }
            comes_to_stand(&servers, "k", 0, ms(1500)).await;
            // Nor does a copy that comes later put it there.
            sleep(ms(100)).await;
            assert_eq!(stands(&servers, "k"), 0);
            drop(locks.lock("k").acquire().await.unwrap());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_majority_it_is_no_quorum_and_never_busy() {
    let servers = servers(5);
    let (holder, locks) = (manager(&servers).await, manager(&servers).await);
    servers[3..].iter().for_each(|server| server.stop());
    let lease = holder.lock("k").ttl(ms(60_000)).acquire().await.unwrap();
    let LockError::Busy(_) = locks.lock("k").acquire().await.unwrap_err() else { panic!() };
    servers[2].stop();
    let LockError::NoQuorum(it) = locks.lock("k").acquire().await.unwrap_err() else { panic!() };
    assert_eq!((it.granted(), it.held(), it.failed()), (0, 2, 3));
    let LockError::NoQuorum(it) = locks.lock("free").acquire().await.unwrap_err() else { panic!() };
    // Nobody waits for servers whose answers cannot make a majority any more.
    assert!(it.granted() <= 2 && it.held() == 0 && it.failed() == 5 - it.granted(), "{it}");
    servers.iter().for_each(|server| server.stop());
    assert!(matches!(locks.lock("k").acquire().await.unwrap_err(), LockError::Unavailable(_)));
    drop(lease);
}

#[tokio::test(start_paused = true)]
async fn half_of_the_servers_are_not_enough() {
    for count in [2, 4] {
        let servers = servers(count);
        let locks = manager(&servers).await;
        servers[count / 2..].iter().for_each(|server| server.stop());
        let refused = locks.lock("k").acquire().await.unwrap_err();
        assert!(matches!(refused, LockError::NoQuorum(_)), "of {count}: {refused}");
        comes_to_stand(&servers, "k", 0, ms(1000)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn shutdown_gives_back_on_all_servers() {
    let servers = servers(3);
    let locks = manager(&servers).await;
    let leases = [locks.lock("a").acquire().await.unwrap(), locks.lock("b").acquire().await.unwrap()];
    let shutdown = locks.shutdown(ms(2000)).await;
    assert_eq!((shutdown.released, shutdown.left), (2, 0));
    for key in ["a", "b"] {
        comes_to_stand(&servers, key, 0, ms(10)).await;
    }
    drop(leases);
}

#[tokio::test(start_paused = true)]
async fn new_servers_in_quarantine_vote_after_it_or_when_told() {
    for told in [false, true] {
        let servers = servers(3);
        let locks = on(&servers).quarantine(true).max_ttl(ms(10_000)).default_ttl(ms(5000)).build().await.unwrap();
        let LockError::NoQuorum(refused) = locks.lock("k").acquire().await.unwrap_err() else { panic!() };
        assert!(refused.to_string().contains("is new or may have lost its memory"), "{refused}");
        if told {
            locks.bootstrap().await.unwrap();
        } else {
            sleep(ms(9900)).await;
            assert!(matches!(locks.lock("k").acquire().await, Err(LockError::NoQuorum(_))));
            sleep(ms(200)).await;
        }
        let lease = locks.lock("k").acquire().await.unwrap();
        sleep(ms(20_000)).await;
        assert!(lease.is_held());
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_stays_for_a_grace_is_not_forgotten_by_the_quarantine_either() {
    for forgets in [false, true] {
        let servers = servers(3);
        let build = || on(&servers).quarantine(true).max_ttl(ms(3000)).default_ttl(ms(3000)).grace(ms(3000)).build();
        let (first, second) = (build().await.unwrap(), build().await.unwrap());
        first.bootstrap().await.unwrap();
        first.lock("warm").run(async |_| ()).await.unwrap();
        let begun = Instant::now();
        let lease = first.lock("k").renew(Renew::Off).acquire().await.unwrap();
        comes_to_stand(&servers, "k", 3, ms(10)).await;
        if forgets {
            servers[..2].iter().for_each(|server| server.restart(false));
        }
        let next = second.lock("k").wait(ms(9000)).acquire().await.unwrap();
        assert!(begun.elapsed() >= ms(5900), "{:?}", begun.elapsed());
        drop((lease, next));
    }
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_was_set_back_does_not_prolong_the_quarantine_by_as_much() {
    let servers = servers(3);
    servers.iter().for_each(|server| server.clock().step_forward(Duration::from_secs(86_400)));
    let locks = on(&servers).quarantine(true).max_ttl(ms(3000)).default_ttl(ms(2000)).build().await.unwrap();
    assert!(matches!(locks.lock("k").acquire().await, Err(LockError::NoQuorum(_))));
    servers.iter().for_each(|server| server.clock().step_back(Duration::from_secs(86_400)));
    let begun = Instant::now();
    locks.lock("k").wait(ms(10_000)).acquire().await.unwrap().release().await.unwrap();
    assert!(begun.elapsed() >= ms(2900), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_bootstrap_that_comes_late_does_not_hide_what_was_granted_meanwhile() {
    let servers = servers(3);
    let build = || on(&servers).quarantine(true).max_ttl(ms(60_000)).default_ttl(ms(20_000)).build();
    let (first, second) = (build().await.unwrap(), build().await.unwrap());
    // It has asked whether they are new, and tells them later.
    servers
        .iter()
        .for_each(|server| drop(server.inject(Match::nth(1).script(BOOTSTRAP), Fault::DelayCommand(ms(300)))));
    let late = tokio::spawn(async move { second.bootstrap().await });
    sleep(ms(100)).await;
    servers.iter().for_each(|server| server.clear());
    first.bootstrap().await.unwrap();
    let lease = first.lock("k").acquire().await.unwrap();
    late.await.unwrap().unwrap();
    for server in &servers {
        let epoch = server.command(&["GET", "{distlock}:epoch"]).unwrap();
        assert!(epoch.as_text().is_some_and(|it| it.starts_with("1 ")), "{epoch:?}");
    }
    drop(lease);
}

distlock::lock_set! { Billing { namespace = "billing" } }

#[derive(distlock::LockKey)]
#[lock(key = "billed", set = Billing)]
struct Billed;

#[tokio::test(start_paused = true)]
async fn a_server_that_was_lost_is_not_voted_in_by_bootstrap() {
    let servers = servers(3);
    let locks = on(&servers).quarantine(true).max_ttl(ms(10_000)).default_ttl(ms(5000)).build().await.unwrap();
    locks.bootstrap().await.unwrap();
    // As a job does at each start.
    locks.bootstrap().await.unwrap();
    // In a namespace of its own, whose counter is another.
    locks.lock(Billed).run(async |_| ()).await.unwrap();
    sleep(ms(1)).await;
    locks.bootstrap().await.unwrap();
    servers[1].restart(false);
    sleep(ms(200)).await;
    for _ in 0..2 {
        let refused = locks.bootstrap().await.unwrap_err();
        assert!(matches!(refused, LockError::Config(_)), "{refused}");
        locks.lock("k").run(async |_| ()).await.unwrap();
    }
    servers[0].stop();
    let refused = locks.lock("k").acquire().await.unwrap_err();
    assert!(matches!(refused, LockError::NoQuorum(_)), "{refused}");
    assert!(locks.bootstrap().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_bootstrap_that_reached_only_some_can_be_made_again() {
    let servers = servers(3);
    let locks = on(&servers).quarantine(true).max_ttl(ms(10_000)).default_ttl(ms(5000)).build().await.unwrap();
    let refused = servers[0].inject(Match::every().script(BOOTSTRAP), Fault::Refuse(Refusal::MisConf));
    assert!(locks.bootstrap().await.is_err());
    assert_eq!(refused.hits(), 1);
    let told = |server: &std::sync::Arc<distlock_testkit::EmbeddedServer>| {
        server.command(&["GET", "{distlock}:epoch"]).unwrap().as_text().is_some_and(|it| it.starts_with("0 "))
    };
    assert_eq!(servers.iter().filter(|server| told(server)).count(), 2);
    servers[0].clear();
    locks.bootstrap().await.unwrap();
    assert!(servers.iter().all(told));
    let lease = locks.lock("k").acquire().await.unwrap();
    comes_to_stand(&servers, "k", 3, ms(10)).await;
    drop(lease);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_under_way_when_all_has_ended() {
    let servers = servers(3);
    let locks = manager(&servers).await;
    servers[2].inject(Match::every(), Fault::BlackHole);
    for round in 0..5 {
        let lease = locks.lock(format!("k{round}")).ttl(ms(5000)).acquire().await.unwrap();
        sleep(ms(2000)).await;
        lease.release().await.unwrap();
    }
    drop(locks);
    servers.iter().for_each(|server| server.clear());
    sleep(ms(70_000)).await;
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0, "tasks are left");
    for round in 0..5 {
        assert_eq!(stands(&servers, &format!("k{round}")), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_line_that_is_none_keeps_no_lock_and_leaves_none() {
    for count in 1..=3 {
        let servers = servers(3);
        let (locks, other) = (manager(&servers).await, manager(&servers).await);
        for server in &servers[..count] {
            server.command(&["SET", "{distlock:k}:queue", "no line"]).unwrap();
            server.command(&["SET", "{distlock:k}:waiters", "no hash"]).unwrap();
        }
        let lease = locks.lock("k").ttl(ms(60_000)).acquire().await.unwrap();
        sleep(ms(1)).await;
        let busy = other.lock("k").wait(ms(300)).acquire().await.unwrap_err();
        assert!(busy.is_busy(), "{busy}");
        lease.release().await.unwrap();
        comes_to_stand(&servers, "k", 0, ms(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn of_two_that_ask_at_the_same_moment_one_gets_in_also_while_a_server_is_down() {
    for round in 0..20 {
        let servers = servers(3);
        let managers = [manager(&servers).await, manager(&servers).await];
        for locks in &managers {
            locks.lock("warm").run(async |_| ()).await.unwrap();
        }
        sleep(ms(5)).await;
        servers[2].stop();
        // Each has a server of its own that it reaches first, and is told by its ttl.
        let ttls = [60_000, 61_000];
        for (server, late) in servers.iter().zip([ttls[1], ttls[0]]) {
            let of_the_other = move |parts: &[String]| parts.iter().any(|part| *part == late.to_string());
            server.inject(Match::nth(1).script(VOTE).when(of_the_other), Fault::DelayCommand(ms(1)));
        }
        let asked: Vec<_> = managers
            .into_iter()
            .zip(ttls)
            .map(|(locks, ttl)| tokio::spawn(async move { locks.lock("k").ttl(ms(ttl)).acquire().await }))
            .collect();
        let mut leases = Vec::new();
        for answer in asked {
            leases.extend(answer.await.unwrap().ok());
        }
        assert_eq!(leases.len(), 1, "round {round}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_majority_owes_is_seen_to_until_it_answers_and_has_the_others_asked_no_more_often() {
    let servers = servers(3);
    let locks = manager(&servers).await;
    locks.lock("warm").run(async |_| ()).await.unwrap();
    sleep(ms(5)).await;
    for server in &servers[..2] {
        server.inject(Match::every().script(VOTE), Fault::CutAfter);
        server.inject(Match::every().script(RELEASE), Fault::Refuse(Refusal::Loading));
    }
    for round in 0..100 {
        let refused = locks.lock(format!("k{round}")).ttl(ms(600_000)).wait(ms(100)).acquire().await.unwrap_err();
        assert!(!refused.is_busy(), "{refused}");
    }
    let standing = || (0..100).map(|round| stands(&servers, &format!("k{round}"))).sum::<usize>();
    sleep(ms(10_000)).await;
    assert!(standing() >= 100, "{}", standing());
    servers[2].clear_log();
    sleep(ms(10_000)).await;
    assert!(servers[2].log().iter().filter(|seen| seen.connection != 0).count() < 100);
    servers.iter().for_each(|server| server.clear());
    sleep(ms(5000)).await;
    assert_eq!(standing(), 0);
}

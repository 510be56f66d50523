//! Users and passwords: in the URL, over a unix socket, and changed while locks are held.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use distlock::{LockError, LockManager, Login, Release};
use distlock_testkit::{Fault, FaultProxy, Match, Refusal, Server, server_or_skip};

use crate::support::{ask, exists, ms, queued, timed, until};

/// A password with everything that means something in a URL, and how it is written there.
const SPECIAL: (&str, &str) = ("p@ss/w#rd?:%&+", "p%40ss%2Fw%23rd%3F%3A%25%26%2B");

fn user(server: &Server, name: &str, password: &str) {
    ask(server, &["ACL", "SETUSER", name, "on", "resetpass", &format!(">{password}"), "~*", "&*", "+@all"]);
}

#[tokio::test]
async fn a_user_with_any_password_logs_in_by_a_percent_encoded_url() {
    let server = server_or_skip!(Server::builder().password("default").unix_socket());
    user(&server, "app@eu", SPECIAL.0);
    let tcp = format!("redis://app%40eu:{}@127.0.0.1:{}/3", SPECIAL.1, server.port());
    let socket = server.unix_socket().unwrap();
    let unix = format!("unix://{}?user=app%40eu&pass={}&db=3", socket.display(), SPECIAL.1);
    for url in [tcp, unix.clone(), unix.replace("unix:", "redis+unix:")] {
        let locks = LockManager::connect(url).await.unwrap();
        let lease = locks.lock("k").acquire().await.unwrap();
        let mut connection = server.connect().unwrap();
        connection.command(&["SELECT", "3"]).unwrap();
        assert_eq!(connection.command(&["EXISTS", "distlock:k"]).unwrap().as_int(), Some(1));
        let clients = ask(&server, &["CLIENT", "LIST"]);
        assert!(clients.as_text().unwrap().contains("user=app@eu"), "{clients:?}");
        assert_eq!(lease.release().await.unwrap(), Release::Released);
    }
    for wrong in [unix.replace("&pass=", "&pass=x"), format!("unix://{}", socket.display())] {
        let (refused, took) = timed(LockManager::connect(wrong)).await;
        assert!(matches!(refused.unwrap_err(), LockError::Permission(_)));
        assert!(took < ms(1000), "{took:?}");
    }
}

#[tokio::test]
async fn a_wrong_password_is_not_tried_again_and_again() {
    let server = server_or_skip!();
    user(&server, "app", "right");
    let url = format!("redis://app:wrong@127.0.0.1:{}", server.port());
    let locks = LockManager::builder().url(url).lazy().build().await.unwrap();
    let before = ask(&server, &["INFO", "stats"]).as_text().unwrap().to_owned();
    let (refused, took) = timed(locks.lock("k").wait(ms(5000)).acquire()).await;
    assert!(matches!(refused.unwrap_err(), LockError::Permission(_)));
    assert!(took < ms(1000), "{took:?}");
    tokio::time::sleep(ms(500)).await;
    let made = connections(ask(&server, &["INFO", "stats"]).as_text().unwrap()) - connections(&before);
    assert!(made <= 2, "{made} connections");
}

fn connections(stats: &str) -> u64 {
    let line = stats.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
    line.unwrap().trim().parse().unwrap()
}

/// A manager whose provider gives what stands in the cell, and how often it was asked.
async fn provided(server: &Server, login: &Arc<Mutex<Login>>) -> (LockManager, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let (cell, count) = (login.clone(), asked.clone());
    let builder = LockManager::builder().url(format!("redis://127.0.0.1:{}", server.port())).credentials(move || {
        count.fetch_add(1, Ordering::Relaxed);
        let login = cell.lock().unwrap().clone();
        async move { Ok(login) }
    });
    (builder.build().await.unwrap(), asked)
}

#[tokio::test]
async fn a_password_is_changed_while_a_lease_is_held_and_others_wait() {
    let server = server_or_skip!();
    ask(&server, &["CONFIG", "SET", "requirepass", "kit"]);
    user(&server, "app", "old");
    let login = Arc::new(Mutex::new(Login::new("app", "old")));
    let (holder, asked) = provided(&server, &login).await;
    let (waiter, _) = provided(&server, &login).await;
    let lease = holder.lock("k").ttl(ms(900)).acquire().await.unwrap();
    let token = lease.fencing_token();
    let waiting = tokio::spawn(waiter.lock("k").ttl(ms(900)).wait(ms(20_000)).around(async {}));
    queued(&server, "k", 1).await;

    // The password alone: standing connections stay.
    user(&server, "app", "new");
    *login.lock().unwrap() = Login::new("app", "new");
    let before = asked.load(Ordering::Relaxed);
    tokio::time::sleep(ms(700)).await;
    assert!(lease.is_held());
    assert!(asked.load(Ordering::Relaxed) <= before + 1, "asked without need");

    // Every connection is cut: the next ones come with the new password.
    ask(&server, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    tokio::time::sleep(ms(1200)).await;
    assert!(lease.is_held(), "the lease did not survive the change");
    assert!(asked.load(Ordering::Relaxed) > before);

    // The user is deleted, and with it the connections; another one is there already.
    user(&server, "app-2", "third");
    *login.lock().unwrap() = Login::new("app-2", "third");
    ask(&server, &["ACL", "DELUSER", "app"]);
    tokio::time::sleep(ms(1200)).await;
    assert!(lease.is_held(), "the lease did not survive the new user");
    assert_eq!(lease.fencing_token(), token);
    assert!(!waiting.is_finished());
    queued(&server, "k", 1).await;
    // It goes on in the background if the connection was cut just now.
    let _ = lease.release().await;
    let (done, took) = timed(waiting).await;
    done.unwrap().unwrap();
    assert!(took < ms(1000), "the waiter was told late: {took:?}");
    until("the key is gone", ms(1000), || !exists(&server, "distlock:k")).await;
}

#[tokio::test]
async fn a_login_that_does_not_count_any_more_is_asked_for_anew() {
    let server = server_or_skip!(Server::builder().password("right"));
    let proxy = FaultProxy::start(server.port()).await.unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let builder = LockManager::builder().url(proxy.url()).credentials(move || {
        count.fetch_add(1, Ordering::Relaxed);
        async { Ok(Login::password("right")) }
    });
    let locks = builder.build().await.unwrap();
    locks.lock("k").run(async |_| ()).await.unwrap();
    for refusal in ["NOAUTH Authentication required.", "WRONGPASS invalid username-password pair"] {
        let before = asked.load(Ordering::Relaxed);
        let fault = proxy.inject(Match::nth(1).command("EVALSHA"), Fault::Refuse(Refusal::Other(refusal.to_owned())));
        let error = locks.lock("k").acquire().await.unwrap_err();
        assert!(matches!(error, LockError::Permission(_)), "{error:?}");
        assert_eq!(fault.hits(), 1);
        locks.lock("k").run(async |_| ()).await.unwrap();
        assert_eq!(asked.load(Ordering::Relaxed), before + 1, "{refusal}");
    }
}

#[tokio::test]
async fn a_provider_is_asked_instead_of_the_url_and_its_failure_is_told() {
    let server = server_or_skip!(Server::builder().password("right"));
    let url = format!("redis://someone:wrong@127.0.0.1:{}", server.port());
    let with = |login: Login| {
        LockManager::builder().url(url.clone()).credentials(move || {
            let login = login.clone();
            async move { Ok(login) }
        })
    };
    with(Login::password("right")).build().await.unwrap();
    let error = with(Login::password("s3cret")).build().await.unwrap_err();
    assert!(matches!(error, LockError::Permission(_)), "{error:?}");
    assert!(
        !format!("{error} {:?} {:?}", with(Login::password("s3cret")), Login::password("s3cret")).contains("s3cret")
    );
    let failing = LockManager::builder().url(url.clone()).credentials(|| async { Err("the vault is sealed".into()) });
    let error = failing.build().await.unwrap_err();
    assert!(matches!(error, LockError::Unavailable(_)), "{error:?}");
    assert!(error.to_string().contains("the vault is sealed"), "{error}");
    // One that hangs costs the time to connect and no more.
    let hanging = LockManager::builder().url(url).connect_timeout(ms(200)).credentials(std::future::pending);
    let (refused, took) = timed(hanging.build()).await;
    assert!(matches!(refused.unwrap_err(), LockError::Unavailable(_)));
    assert!(took < ms(600), "{took:?}");
}

#[tokio::test]
async fn a_login_that_is_refused_says_where_it_came_from() {
    let server = server_or_skip!();
    user(&server, "app", "right");
    let url = format!("redis://app:wrong@127.0.0.1:{}", server.port());
    let error = LockManager::connect(url).await.unwrap_err().to_string();
    let address = format!("127.0.0.1:{}: the login: user or password is wrong", server.port());
    assert!(error.contains(&address) && error.contains("redis://user:password@host"), "{error}");
    let url = format!("redis://127.0.0.1:{}", server.port());
    let provided = LockManager::builder().url(url).credentials(|| async { Ok(Login::new("app", "wrong")) });
    let error = provided.build().await.unwrap_err().to_string();
    assert!(error.contains("the provider of `Builder::credentials`") && !error.contains("redis://user"), "{error}");
}

#[tokio::test]
async fn a_database_that_cannot_be_had_says_what_to_do() {
    let server = server_or_skip!();
    let error = LockManager::connect(format!("{}/99", server.url())).await.unwrap_err();
    assert!(matches!(error, LockError::Config(_)), "{error:?}");
    assert!(error.to_string().contains("database 99") && error.to_string().contains("write one"), "{error}");
    ask(&server, &["ACL", "SETUSER", "narrow", "on", ">p", "~*", "&*", "+@all", "-select"]);
    let error = LockManager::connect(format!("redis://narrow:p@127.0.0.1:{}/1", server.port())).await.unwrap_err();
    assert!(matches!(error, LockError::Permission(_)), "{error:?}");
    assert!(error.to_string().contains("+select"), "{error}");
}

#[tokio::test]
async fn a_command_that_is_refused_says_by_which_server() {
    let server = server_or_skip!();
    ask(&server, &["ACL", "SETUSER", "poor", "on", ">p", "~*", "&*", "+get"]);
    let locks = LockManager::connect(format!("redis://poor:p@127.0.0.1:{}", server.port())).await.unwrap();
    let error = locks.lock("k").acquire().await.unwrap_err();
    assert!(matches!(error, LockError::Permission(_)), "{error:?}");
    assert!(error.to_string().contains(&format!("127.0.0.1:{}", server.port())), "{error}");
}

#[tokio::test]
async fn encryption_is_not_suspected_of_a_server_that_was_spoken_with() {
    let server = server_or_skip!();
    let never = LockManager::builder().url(server.url()).lazy().build().await.unwrap();
    let once = LockManager::connect(server.url()).await.unwrap();
    server.pause().unwrap();
    let first = never.lock("k").acquire().await.unwrap_err().to_string();
    assert!(first.contains("rediss://"), "{first}");
    // The old connection is given up as frozen, and a new one stays silent.
    for _ in 0..4 {
        let error = once.lock("k").acquire().await.unwrap_err().to_string();
        assert!(!error.contains("rediss://"), "{error}");
    }
    server.resume().unwrap();
}

#[tokio::test]
async fn a_provider_that_panics_is_asked_no_more_often_than_one_whose_login_is_refused() {
    static ASKED: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let server = server_or_skip!();
    let provider = || async {
        assert!(ASKED.fetch_add(1, std::sync::atomic::Ordering::Relaxed) > 1_000_000, "this provider panics");
        Ok(Login::new("app", "p"))
    };
    let locks = LockManager::builder().url(server.url()).lazy().credentials(provider).build().await.unwrap();
    let begun = std::time::Instant::now();
    while begun.elapsed() < ms(1000) {
        let refused = locks.lock("k").acquire().await.unwrap_err();
        assert!(matches!(refused, LockError::Unavailable(_)), "{refused}");
        tokio::time::sleep(ms(1)).await;
    }
    let asked = ASKED.load(std::sync::atomic::Ordering::Relaxed);
    assert!((2..=12).contains(&asked), "{asked}");
}

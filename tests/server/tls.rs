//! Encrypted connections, on a server with certificates of the test's own.

use std::process::{Command, Stdio};

use distlock::{LockError, LockManager, Release, Tls};
use distlock_testkit::{Certificates, Server, server_or_skip};

use crate::support::{ask, ms, timed, until};

async fn connect(url: String, tls: Tls) -> Result<LockManager, LockError> {
    LockManager::builder().url(url).tls(tls).build().await
}

/// Everything that a manager sends, on both of its connections.
async fn use_locks(locks: &LockManager) {
    let lease = locks.lock("k").ttl(ms(600)).acquire().await.unwrap();
    let waiting = tokio::spawn(locks.lock("k").wait(ms(5000)).around(async {}));
    tokio::time::sleep(ms(800)).await;
    assert!(lease.is_held(), "not renewed");
    assert_eq!(lease.release().await.unwrap(), Release::Released);
    waiting.await.unwrap().unwrap();
}

#[tokio::test]
async fn locks_work_over_tls_with_an_authority_of_ones_own() {
    let certificates = Certificates::new().unwrap();
    let server = server_or_skip!(Server::builder().password("p4ss").tls(&certificates));
    let url = server.tls_url().unwrap();
    use_locks(&connect(url.clone(), Tls::new().ca_pem(certificates.ca_pem())).await.unwrap()).await;
    let file = server.folder().join("ca.pem");
    let valkeys = url.replace("rediss://", "valkeys://");
    use_locks(&connect(valkeys, Tls::new().ca_file(file)).await.unwrap()).await;
    // By name as well as by address.
    let named = url.replace("127.0.0.1", "localhost");
    connect(named, Tls::new().ca_pem(certificates.ca_pem())).await.unwrap();
}

#[tokio::test]
async fn a_server_that_cannot_prove_who_it_is_is_refused_for_good() {
    let certificates = Certificates::new().unwrap();
    let server = server_or_skip!(Server::builder().tls(&certificates));
    let url = server.tls_url().unwrap();
    let other = Certificates::new().unwrap();
    for tls in [Tls::new(), Tls::new().ca_pem(other.ca_pem())] {
        let (refused, took) = timed(connect(url.clone(), tls)).await;
        let error = refused.unwrap_err();
        assert!(matches!(error, LockError::Config(_)), "{error:?}");
        assert!(error.to_string().contains("Tls::new().ca_file"), "{error}");
        assert!(took < ms(1000), "{took:?}");
    }
    assert!(!server.log().contains("distlock:"), "a command was sent before the server was known");

    let elsewhere = Certificates::for_names(&["locks.internal"]).unwrap();
    let server = server_or_skip!(Server::builder().tls(&elsewhere));
    let error = connect(server.tls_url().unwrap(), Tls::new().ca_pem(elsewhere.ca_pem())).await.unwrap_err();
    assert!(matches!(error, LockError::Config(_)) && error.to_string().contains("another name"), "{error:?}");
}

#[tokio::test]
async fn a_certificate_out_of_its_time_is_refused_at_once_and_its_time_is_named() {
    let cases = [(2001..2002, "has expired", "renew it"), (4000..4001, "is not valid yet", "set this machine's clock")];
    for (years, reason, fix) in cases {
        let certificates = Certificates::for_years(years).unwrap();
        let server = server_or_skip!(Server::builder().tls(&certificates));
        let tls = Tls::new().ca_pem(certificates.ca_pem());
        let (refused, took) = timed(connect(server.tls_url().unwrap(), tls.clone())).await;
        let told = |error: LockError| {
            assert!(matches!(error, LockError::Config(_)) && !error.is_retryable(), "{error:?}");
            let text = error.to_string();
            assert!(text.contains(&format!("the server's certificate {reason}")) && text.contains(fix), "{text}");
            assert!(text.contains("127.0.0.1"), "{text}");
        };
        told(refused.unwrap_err());
        assert!(took < ms(1000), "{took:?}");
        // Nor is it waited for until it counts.
        let lazy = LockManager::builder().url(server.tls_url().unwrap()).tls(tls).lazy().build().await.unwrap();
        let (refused, took) = timed(lazy.lock("k").wait(ms(5000)).acquire()).await;
        told(refused.unwrap_err());
        assert!(took < ms(1000), "{took:?}");
        assert_eq!(server.calls("hello").unwrap() + server.calls("evalsha").unwrap(), 0, "something was sent");
    }
}

#[tokio::test]
async fn a_server_that_asks_for_a_client_certificate_gets_it_or_says_so() {
    let certificates = Certificates::new().unwrap();
    let server = server_or_skip!(Server::builder().mutual_tls(&certificates));
    let url = server.tls_url().unwrap();
    let trusting = Tls::new().ca_pem(certificates.ca_pem());
    let (refused, took) = timed(connect(url.clone(), trusting.clone())).await;
    let error = refused.unwrap_err();
    assert!(matches!(error, LockError::Permission(_)), "{error:?}");
    assert!(error.to_string().contains("client_cert_files"), "{error}");
    assert!(took < ms(1000), "{took:?}");

    let with = trusting.clone().client_cert(certificates.client_cert_pem(), certificates.client_key_pem());
    use_locks(&connect(url.clone(), with).await.unwrap()).await;

    // Of another authority.
    let other = Certificates::new().unwrap();
    let stranger = trusting.clone().client_cert(other.client_cert_pem(), other.client_key_pem());
    let error = connect(url.clone(), stranger).await.unwrap_err();
    assert!(matches!(error, LockError::Permission(_)), "{error:?}");

    // From files, and renewed in them: the next connection shows the new one.
    let (cert, key) = (server.folder().join("app.pem"), server.folder().join("app.key"));
    std::fs::write(&cert, certificates.client_cert_pem()).unwrap();
    std::fs::write(&key, certificates.client_key_pem()).unwrap();
    let locks = connect(url, trusting.client_cert_files(&cert, &key)).await.unwrap();
    std::fs::write(&cert, other.client_cert_pem()).unwrap();
    std::fs::write(&key, other.client_key_pem()).unwrap();
    ask(&server, &["CLIENT", "KILL", "TYPE", "normal"]);
    let refused = locks.lock("k").acquire().await.unwrap_err();
    assert!(matches!(refused, LockError::Permission(_) | LockError::Unavailable(_)), "{refused:?}");
    std::fs::write(&cert, certificates.client_cert_pem()).unwrap();
    std::fs::write(&key, certificates.client_key_pem()).unwrap();
    tokio::time::sleep(ms(150)).await;
    locks.lock("k").wait(ms(2000)).run(async |_| ()).await.unwrap();
}

#[tokio::test]
async fn a_wrong_port_is_told_from_a_wrong_certificate() {
    let certificates = Certificates::new().unwrap();
    let server = server_or_skip!(Server::builder().tls(&certificates));
    let tls = Tls::new().ca_pem(certificates.ca_pem());
    let encrypted_to_plain = server.url().replace("redis://", "rediss://");
    let error = connect(encrypted_to_plain, tls).await.unwrap_err();
    assert!(error.to_string().contains("`redis://`"), "{error:?}");
    let plain_to_encrypted = server.tls_url().unwrap().replace("rediss://", "redis://");
    let error = LockManager::connect(plain_to_encrypted).await.unwrap_err();
    assert!(error.to_string().contains("`rediss://`"), "{error:?}");
}

#[tokio::test]
async fn a_server_that_goes_away_during_the_handshake_is_an_outage() {
    // As a balancer does that has no server behind it, and the system for a server that was killed.
    let balancer = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("rediss://{}", balancer.local_addr().unwrap());
    tokio::spawn(async move { while balancer.accept().await.is_ok() {} });
    let error = connect(url, Tls::new()).await.unwrap_err();
    assert!(matches!(error, LockError::Unavailable(_)) && error.is_retryable(), "{error:?}");
    assert!(error.to_string().contains("TLS port") && error.to_string().contains("`redis://`"), "{error}");
}

#[tokio::test]
async fn a_certificate_that_cannot_be_read_is_refused_before_anything_is_sent() {
    let certificates = Certificates::new().unwrap();
    let (cert, key) = (certificates.client_cert_pem(), certificates.client_key_pem());
    let other = Certificates::new().unwrap();
    let bad = [
        (Tls::new().ca_pem("/etc/ssl/ca.pem"), "BEGIN CERTIFICATE"),
        (Tls::new().ca_file("/no/such/ca.pem"), "`/no/such/ca.pem`"),
        (Tls::new().client_cert("x", key), "BEGIN CERTIFICATE"),
        (Tls::new().client_cert(cert, "S3CRET"), "BEGIN PRIVATE KEY"),
        (Tls::new().client_cert(cert, other.client_key_pem()), "belongs to the key"),
        (Tls::new().client_cert_files("/no/app.pem", "/no/app.key"), "`/no/app.pem`"),
    ];
    for (tls, fix) in bad {
        // Nobody is there: not even a lazy manager begins.
        let error = LockManager::builder().url("rediss://127.0.0.1:1").tls(tls).lazy().build().await.unwrap_err();
        assert!(matches!(error, LockError::Config(_)) && error.to_string().contains(fix), "{error:?}");
        assert!(!error.to_string().contains("S3CRET"), "{error}");
    }
    let error = LockManager::builder().url("redis://127.0.0.1:1").tls(Tls::new()).build().await.unwrap_err();
    assert!(error.to_string().contains("`rediss://"), "{error}");
    let error = LockManager::connect("rediss://127.0.0.1:1/#insecure").await.unwrap_err();
    assert!(matches!(error, LockError::Config(_)) && error.to_string().contains("ca_file"), "{error:?}");
}

const URL: &str = "DISTLOCK_TEST_TLS_URL";

/// Not a test of its own: a process whose system knows the authority.
#[tokio::test]
async fn with_the_authorities_of_the_system() {
    let Ok(url) = std::env::var(URL) else { return };
    use_locks(&LockManager::connect(url).await.unwrap()).await;
}

#[tokio::test]
async fn the_authorities_of_the_system_are_trusted_without_a_setting() {
    let certificates = Certificates::new().unwrap();
    let server = server_or_skip!(Server::builder().tls(&certificates));
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "tls::with_the_authorities_of_the_system", "--nocapture"])
        .env(URL, server.tls_url().unwrap())
        .env("SSL_CERT_FILE", server.folder().join("ca.pem"))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut ended = None;
    until("the process ends", ms(20_000), || {
        ended = process.try_wait().unwrap();
        ended.is_some()
    })
    .await;
    assert!(ended.unwrap().success());
}

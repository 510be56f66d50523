//! No password and no owner token in anything that may reach a log: errors, what `{:?}` shows, events.

use std::fmt::{self, Write as _};

use distlock::{LockManager, Login, Tls};
use distlock_testkit::{Reply, Server, server_or_skip};

use crate::events;
use crate::support::{ask, ms, until};

/// The owner token of a key that is held.
fn token(server: &Server, key: &str) -> String {
    let Reply::Text(value) = ask(server, &["GET", key]) else { panic!("nobody holds `{key}`") };
    value[..36].to_owned()
}

const PASSWORD: &str = "hunter2-horse";

#[tokio::test]
async fn no_failure_tells_a_password_or_a_token() {
    events::listen();
    let server = server_or_skip!(Server::builder().password(PASSWORD).unix_socket());
    let mut told = String::new();
    let mut tell = |what: &dyn fmt::Debug, text: String| writeln!(told, "{what:?} {text}").unwrap();

    // Logins and URLs that fail.
    let (host, socket) = (format!("127.0.0.1:{}", server.port()), server.unix_socket().unwrap());
    for url in [
        format!("redis://:{PASSWORD}x@{host}"),
        format!("redis://{PASSWORD}:{PASSWORD}@{host}"),
        format!("redis://:{PASSWORD}/@{host}"),
        format!("redis://:1#{PASSWORD}@{host}"),
        format!("redis://:1?{PASSWORD}@{host}"),
        format!("redis://x:{PASSWORD}@127.0.0.1:1"),
        format!("redis://x:{PASSWORD}@no-such-host.invalid"),
        format!("rediss://x:{PASSWORD}@{host}"),
        format!("rediss://x:{PASSWORD}@{host}#insecure"),
        format!("redis+cluster://x:{PASSWORD}@{host}:x"),
        format!("redis+sentinel://x:{PASSWORD}@127.0.0.1:1/m"),
        format!("redlock:redis://:{PASSWORD}@{host},nonsense"),
        format!("gopher://x:{PASSWORD}@{host}"),
        format!("unix://{}?pass={PASSWORD}x", socket.display()),
        format!("unix:///no/such/socket?pass={PASSWORD}"),
    ] {
        let builder = LockManager::builder().url(&url).connect_timeout(ms(300));
        tell(&builder, String::new());
        let error = builder.build().await.expect_err(&url);
        tell(&error, error.to_string());
    }
    let provided = LockManager::builder()
        .url(format!("redis://{host}"))
        .credentials(|| async { Ok(Login::new("app", PASSWORD)) })
        .tls(Tls::new().client_cert(PASSWORD, PASSWORD));
    tell(&provided, format!("{:?}", Login::new("app", PASSWORD)));
    let error = provided.build().await.unwrap_err();
    tell(&error, error.to_string());

    // Locks that fail, with their tokens on the server.
    let locks = LockManager::connect(server.url()).await.unwrap();
    let other = LockManager::builder().url(server.url()).response_timeout(ms(100)).build().await.unwrap();
    let lease = locks.lock("k").ttl(ms(600)).acquire().await.unwrap();
    let mut tokens = vec![token(&server, "distlock:k")];
    tell(&locks, format!("{lease:?} {:?} {:?}", lease.handle(), locks.lock("k")));
    let error = other.lock("k").acquire().await.unwrap_err();
    tell(&error, error.to_string());
    ask(&server, &["SET", "distlock:k", &"f".repeat(36)]);
    let lost = lease.lost().await;
    tell(&lost, lost.to_string());
    let error = other.lock("k").acquire().await.unwrap_err();
    tell(&error, error.to_string());

    // A release without an answer.
    let lease = other.lock("r").ttl(ms(400)).acquire().await.unwrap();
    tokens.push(token(&server, "distlock:r"));
    server.pause().unwrap();
    let error = lease.release().await.unwrap_err();
    tell(&error, error.to_string());
    tokio::time::sleep(ms(800)).await;
    server.resume().unwrap();

    // What the server itself says, with the user's name in it.
    ask(
        &server,
        &["ACL", "SETUSER", "poor", "on", &format!(">{PASSWORD}"), "~distlock:*", "-@all", "+eval", "+evalsha"],
    );
    let poor = LockManager::connect(format!("redis://poor:{PASSWORD}@{host}")).await.unwrap();
    let error = poor.lock("p").acquire().await.unwrap_err();
    tell(&error, error.to_string());

    until("the events are there", ms(3000), || {
        events::told().contains("lock lease lost") && events::told().contains("release")
    })
    .await;
    told.push_str(&events::told());
    for secret in tokens.iter().map(String::as_str).chain([PASSWORD, "hunter2"]) {
        assert!(!told.contains(secret), "`{secret}` is told in:\n{told}");
    }
}

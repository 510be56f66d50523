//! A client that goes away in the middle of a locked handler: the key must not wait for its ttl.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::get;
use distlock::{LockManager, distributed_lock};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

#[derive(Clone)]
struct App {
    locks: LockManager,
    inside: Arc<Notify>,
}

#[distributed_lock(
    key = "order:{id}",
    ttl = "30s",
    manager = app.locks,
    on_busy = |_| StatusCode::CONFLICT,
    on_error = |_| StatusCode::BAD_GATEWAY,
    on_lost = |_| StatusCode::GONE,
)]
async fn pay(State(app): State<App>, Path(id): Path<u32>) -> StatusCode {
    app.inside.notify_one();
    std::future::pending().await
}

#[tokio::test]
async fn a_client_that_disconnects_frees_the_key_at_once() {
    let app = App { locks: LockManager::in_memory(), inside: Arc::default() };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new().route("/pay/{id}", get(pay)).with_state(app.clone());
    let server = tokio::spawn(async move { axum::serve(listener, router).await });
    for _ in 0..50 {
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(b"GET /pay/7 HTTP/1.1\r\nHost: shop\r\n\r\n").await.unwrap();
        app.inside.notified().await;
        assert!(app.locks.lock("order:7").try_acquire().await.unwrap().is_none());
        drop(client);
        let gone = Instant::now();
        while app.locks.lock("order:7").try_acquire().await.unwrap().is_none() {
            assert!(gone.elapsed() < Duration::from_millis(100), "the key is still taken");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    server.abort();
}

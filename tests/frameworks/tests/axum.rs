//! Handlers of axum, with `#[debug_handler]` on either side: it writes the function twice.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router, debug_handler};
use distlock::{LockError, LockKey, LockManager, declarations, distributed_lock};
use tower::ServiceExt;

#[derive(Clone)]
struct App {
    locks: Arc<LockManager>,
}

struct ApiError(LockError);

impl From<LockError> for ApiError {
    fn from(err: LockError) -> Self {
        Self(err)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = if self.0.is_busy() { StatusCode::CONFLICT } else { StatusCode::SERVICE_UNAVAILABLE };
        (status, self.0.to_string()).into_response()
    }
}

#[distributed_lock(key = "claim:{shop}:{id}", manager = app.locks)]
#[debug_handler]
async fn above(State(app): State<App>, Path((shop, id)): Path<(u32, u64)>) -> Result<Json<u64>, ApiError> {
    tokio::task::yield_now().await;
    Ok(Json(u64::from(shop) + id))
}

#[debug_handler]
#[distributed_lock(key = "claim:{shop}:{id}", manager = app.locks)]
async fn below(State(app): State<App>, Path((shop, id)): Path<(u32, u64)>) -> Result<Json<u64>, ApiError> {
    tokio::task::yield_now().await;
    Ok(Json(u64::from(shop) + id))
}

#[distributed_lock(key = "note", manager = app.locks, on_busy = |_| StatusCode::LOCKED.into_response(), on_error = |_| StatusCode::BAD_GATEWAY.into_response(), on_lost = |_| StatusCode::GONE.into_response())]
async fn response(State(app): State<App>, body: String) -> impl IntoResponse + use<> {
    body.into_response()
}

async fn answer(app: &App, method: &str, uri: &str) -> StatusCode {
    let router = Router::new()
        .route("/above/{shop}/{id}", get(above))
        .route("/below/{shop}/{id}", get(below))
        .route("/typed/{shop}/{id}", get(typed))
        .route("/response", post(response))
        .with_state(app.clone());
    let request = Request::builder().method(method).uri(uri).body(axum::body::Body::empty()).unwrap();
    router.oneshot(request).await.unwrap().status()
}

/// A declaration in a handler.
#[derive(LockKey)]
#[lock(key = "cart:{shop}:{id}", ttl = "5s")]
struct CartLock {
    shop: u32,
    id: u64,
}

// `lease` wants our attribute above: the check of `#[debug_handler]` has the body without it.
#[distributed_lock([CartLock { shop, id }, ShopLock { shop }], manager = app.locks, lease = lease)]
#[debug_handler]
async fn typed(State(app): State<App>, Path((shop, id)): Path<(u32, u64)>) -> Result<Json<u64>, ApiError> {
    tokio::task::yield_now().await;
    Ok(Json(lease.part::<CartLock>().fencing_token()))
}

#[derive(LockKey)]
#[lock(key = "shop:{shop}", ttl = "5s")]
struct ShopLock {
    shop: u32,
}

#[test]
fn what_is_written_twice_is_listed_once() {
    for name in ["above", "below", "typed"] {
        let found = declarations().into_iter().filter(|declaration| declaration.name() == name).count();
        assert_eq!(found, 1, "{name}");
    }
}

#[tokio::test]
async fn handlers_route_and_answer() {
    let app = App { locks: Arc::new(LockManager::in_memory()) };
    for uri in ["/above/1/2", "/below/1/2"] {
        assert_eq!(answer(&app, "GET", uri).await, StatusCode::OK);
        let held = app.locks.lock("claim:1:2").acquire().await.unwrap();
        assert_eq!(answer(&app, "GET", uri).await, StatusCode::CONFLICT);
        held.release().await.unwrap();
    }
    assert_eq!(answer(&app, "GET", "/typed/1/2").await, StatusCode::OK);
    let held = app.locks.lock("shop:1").acquire().await.unwrap();
    assert_eq!(answer(&app, "GET", "/typed/1/2").await, StatusCode::CONFLICT);
    held.release().await.unwrap();
    assert_eq!(answer(&app, "POST", "/response").await, StatusCode::OK);
    let _held = app.locks.lock("note").acquire().await.unwrap();
    assert_eq!(answer(&app, "POST", "/response").await, StatusCode::LOCKED);
}

//! Handlers of actix hold what is not `Send` across an await.

use std::fmt;

use actix_web::{App, HttpRequest, HttpResponse, ResponseError, get, test, web};
use distlock::{LockError, LockManager, distributed_lock};

#[derive(Debug)]
struct ApiError(LockError);

impl From<LockError> for ApiError {
    fn from(err: LockError) -> Self {
        Self(err)
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl ResponseError for ApiError {}

#[get("/below/{id}")]
#[distributed_lock(key = "k:{id.as_ref()}", manager = locks.get_ref())]
async fn below(
    request: HttpRequest,
    id: web::Path<u32>,
    locks: web::Data<LockManager>,
) -> Result<HttpResponse, ApiError> {
    let local = std::rc::Rc::new(request);
    tokio::task::yield_now().await;
    Ok(HttpResponse::Ok().body(format!("{}{id}", local.path())))
}

#[distributed_lock(key = "k:{request.path()}", manager = locks.get_ref())]
#[get("/above/{id}")]
async fn above(request: HttpRequest, locks: web::Data<LockManager>) -> Result<HttpResponse, ApiError> {
    tokio::task::yield_now().await;
    Ok(HttpResponse::Ok().body(request.path().to_owned()))
}

#[actix_web::test]
async fn handlers_answer() {
    let locks = LockManager::in_memory();
    let app =
        test::init_service(App::new().app_data(web::Data::new(locks.clone())).service(below).service(above)).await;
    let status = async |uri: &str| {
        test::call_service(&app, test::TestRequest::get().uri(uri).to_request()).await.status().as_u16()
    };
    assert_eq!(status("/below/1").await, 200);
    assert_eq!(status("/above/1").await, 200);
    let _held = locks.lock("k:1").acquire().await.unwrap();
    assert_eq!(status("/below/1").await, 500);
}

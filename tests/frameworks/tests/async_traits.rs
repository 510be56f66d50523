//! Methods that `#[async_trait]` has turned into boxed futures, and native ones.

use std::sync::Arc;

use distlock::{LockError, LockManager, distributed_lock, scope};

struct Shop {
    id: u32,
}

#[async_trait::async_trait]
trait Store: Send + Sync {
    fn id(&self) -> u32;

    async fn save(&self, id: u32, name: &str) -> Result<String, LockError>;

    #[distributed_lock(key = "default:{self.id()}:{id}", lease = lease)]
    async fn load(&self, id: u32) -> Result<String, LockError> {
        tokio::task::yield_now().await;
        Ok(format!("{}:{}", lease.key(), self.id() + id))
    }
}

#[async_trait::async_trait]
impl Store for Shop {
    fn id(&self) -> u32 {
        self.id
    }

    #[distributed_lock(key = "save:{self.id}:{id}:{name}", ttl = "5s", lease = lease)]
    async fn save(&self, mut id: u32, name: &str) -> Result<String, LockError> {
        id += 1;
        let name = name.to_owned();
        tokio::task::yield_now().await;
        Ok(format!("{}:{id}:{name}", lease.key()))
    }
}

#[async_trait::async_trait(?Send)]
trait Local {
    #[distributed_lock(key = "local:{id}", on_busy = |_| id, on_error = |_| 0, on_lost = finish)]
    async fn run(self: Arc<Self>, id: u32) -> u32 {
        let rc = std::rc::Rc::new(id + 1);
        tokio::task::yield_now().await;
        *rc
    }
}

impl Local for Shop {}

#[tonic::async_trait]
trait Service {
    async fn call(&self, request: tonic::Request<u32>) -> Result<tonic::Response<u32>, tonic::Status>;
}

#[tonic::async_trait]
impl Service for Shop {
    #[distributed_lock(
        key = "call:{request.get_ref()}",
        on_busy = |busy| Err(tonic::Status::resource_exhausted(busy.to_string())),
        on_error = |err| Err(tonic::Status::unavailable(err.to_string())),
        on_lost = |lost| Err(tonic::Status::aborted(lost.to_string()))
    )]
    async fn call(&self, request: tonic::Request<u32>) -> Result<tonic::Response<u32>, tonic::Status> {
        tokio::task::yield_now().await;
        Ok(tonic::Response::new(request.into_inner() + self.id))
    }
}

#[tokio::test]
async fn boxed_methods_are_locked() {
    let locks = LockManager::in_memory();
    let shop: Arc<dyn Store> = Arc::new(Shop { id: 7 });
    scope(locks.clone(), async {
        assert_eq!(shop.save(1, "x").await.unwrap(), "save:7:1:x:2:x");
        assert_eq!(shop.load(1).await.unwrap(), "default:7:1:8");
        let held = locks.lock("save:7:1:x").acquire().await.unwrap();
        assert!(shop.save(1, "x").await.unwrap_err().is_busy());
        held.release().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn boxed_methods_can_be_spawned() {
    let locks = LockManager::in_memory();
    let task = tokio::spawn(scope(locks, async { Shop { id: 1 }.load(1).await }));
    assert_eq!(task.await.unwrap().unwrap(), "default:1:1:2");
}

#[tokio::test]
async fn closures_see_the_arguments_of_a_boxed_method() {
    let locks = LockManager::in_memory();
    scope(locks.clone(), async {
        assert_eq!(Arc::new(Shop { id: 1 }).run(4).await, 5);
        let _held = locks.lock("local:4").acquire().await.unwrap();
        assert_eq!(Arc::new(Shop { id: 1 }).run(4).await, 4);
    })
    .await;
}

#[tokio::test]
async fn a_grpc_method_answers_with_a_status() {
    let locks = LockManager::in_memory();
    scope(locks.clone(), async {
        let shop = Shop { id: 1 };
        assert_eq!(shop.call(tonic::Request::new(4)).await.unwrap().into_inner(), 5);
        let _held = locks.lock("call:4").acquire().await.unwrap();
        let status = shop.call(tonic::Request::new(4)).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::ResourceExhausted);
    })
    .await;
}

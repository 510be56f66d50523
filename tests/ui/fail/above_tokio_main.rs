// catalogue D5-main
use distlock::{LockError, LockManager, distributed_lock};

#[distributed_lock(key = "order")]
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), LockError> {
    distlock::init(LockManager::in_memory())
}

// catalogue 36
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}")]
async fn claim(id: u64) -> Result<u32, LockError> {
    let rc = std::rc::Rc::new(1);
    tokio::task::yield_now().await;
    Ok(*rc)
}

fn main() {
    fn assert_send<T: Send>(_: T) {}
    assert_send(claim(1));
}

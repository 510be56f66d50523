// catalogue 39
use distlock::{LockError, distributed_lock};

struct Shop;

#[async_trait::async_trait]
trait Claims {
    async fn claim(&self, pair: (u32, u32)) -> Result<u32, LockError>;
}

#[async_trait::async_trait]
impl Claims for Shop {
    #[distributed_lock(key = "order:{first.0}")]
    async fn claim(&self, (first, second): (u32, u32)) -> Result<u32, LockError> {
        Ok(first + second)
    }
}

fn main() {}

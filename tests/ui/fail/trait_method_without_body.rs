// catalogue 32
use distlock::{LockError, distributed_lock};

trait Claims {
    #[distributed_lock(key = "order:{id}")]
    async fn claim(&self, id: u64) -> Result<(), LockError>;
}

fn main() {}

// catalogue D5-on-lost-argument
use distlock::{LockError, distributed_lock};

struct Shop {
    id: u64,
}

impl Shop {
    #[distributed_lock(key = "shop:{self.id}", on_lost = |lost| { eprintln!("{}", lost.key()); Ok(self.id) })]
    async fn close(&self) -> Result<u64, LockError> { Ok(self.id) }
}

fn main() { drop(Shop { id: 1 }.close()); }

// the closure of on_lost cannot use arguments, in whatever way it names them
use distlock::{LockError, distributed_lock};

struct Shop {
    id: u64,
}

impl Shop {
    #[distributed_lock(key = "shop:{self.id}", on_lost = |lost| { eprintln!("{}", lost.key()); Ok(self.id) })]
    async fn close(&self) -> Result<u64, LockError> { Ok(self.id) }
}

#[distributed_lock(key = "order:{id}", on_lost = |_| Ok(format!("lost {id:04}")))]
async fn claim(id: u64) -> Result<String, LockError> { Ok(id.to_string()) }

#[distributed_lock(key = "order:{id}", on_lost = |lost| Ok(Claim { id, key: lost.key().to_owned() }))]
async fn shorthand(id: u64) -> Result<Claim, LockError> { Ok(Claim { id, key: String::new() }) }

struct Claim {
    id: u64,
    key: String,
}

fn main() { drop((Shop { id: 1 }.close(), claim(1), shorthand(1))); }

// catalogue typed-moved
use distlock::{LockError, LockKey, distributed_lock};

#[derive(LockKey)]
#[lock(key = "mail:{address:hash}")]
struct MailLock { address: String }

#[distributed_lock(MailLock { address })]
async fn send(address: String) -> Result<String, LockError> { Ok(address) }

fn main() { drop(send(String::new())); }

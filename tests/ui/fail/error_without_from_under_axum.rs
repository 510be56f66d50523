// catalogue M6
use distlock::distributed_lock;

pub struct StatusCode(pub u16);

#[distributed_lock(key = "order:{id}")]
pub async fn claim(id: u64) -> Result<String, StatusCode> { Ok(id.to_string()) }

fn main() { drop(claim(1)); }

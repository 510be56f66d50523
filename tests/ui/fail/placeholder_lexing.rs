// M25: text on which a lexer could give up
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "{a['x}:{a[\"x}:{a /* }:{0x}:{'}:{r#\"}:{b'}:{1e}:{'a'b}:{a[\"\\q\"]}:{#}:{🦀}:{`}:{a(]}:{\\}")]
async fn claim(a: u64) -> Result<(), LockError> { Ok(()) }

fn main() { drop(claim(1)); }

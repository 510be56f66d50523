// catalogue also-boxed-future
use distlock::distributed_lock;

type BoxFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;

#[distributed_lock(key = "order:{id}")]
async fn claim(id: u64) -> BoxFuture<'static, u64> { Box::pin(async { 1 }) }

fn main() { drop(claim(1)); }

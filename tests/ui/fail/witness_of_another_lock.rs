// catalogue witness-other
use distlock::{Lease, LockError, LockKey, distributed_lock};

#[derive(LockKey)]
#[lock(key = "coupon:{id}")]
struct CouponLock { id: u64 }

#[derive(LockKey)]
#[lock(key = "order:{id}")]
struct OrderLock { id: u64 }

async fn compensate(_held: &Lease<CouponLock>) {}

#[distributed_lock(OrderLock { id }, lease = lease)]
async fn cancel(id: u64) -> Result<(), LockError> {
    compensate(lease).await;
    Ok(())
}

fn main() { drop((CouponLock { id: 1 }, cancel(1))); }

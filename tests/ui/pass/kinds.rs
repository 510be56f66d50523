//! Every kind of function, in a crate that denies warnings.
#![deny(warnings)]
#![forbid(unsafe_code)]
#![allow(dead_code)]

use std::sync::Arc;

use distlock::{LockError, distributed_lock};

struct Order {
    id: u64,
}

struct User {
    id: String,
    name: Box<str>,
}

#[distributed_lock(key = "nightly")]
async fn constant() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "order:{order.id}", ttl = "5s")]
async fn moved(order: Order) -> Result<Order, LockError> {
    Ok(consume(order).await)
}

async fn consume(order: Order) -> Order {
    order
}

#[distributed_lock(key = "n:{n}", ttl = "5s")]
async fn mutable(mut n: u32) -> Result<u32, LockError> {
    n += 1;
    Ok(n)
}

#[distributed_lock(key = "n:{n}")]
async fn only_in_the_key(n: u32) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "{a}/{b}")]
async fn borrowed(a: &str, b: &str) -> Result<Vec<u8>, LockError> {
    Ok([a.as_bytes(), b.as_bytes()].concat())
}

#[distributed_lock(key = "c:{a}:{x}:{y}:{user.name}", ttl = "1m 30s")]
async fn patterns((a, mut b): (u32, u32), [x, y]: [u8; 2], user @ User { .. }: User, _: String, _permit: Arc<u32>) -> Result<u32, LockError> {
    b += u32::from(x) + u32::from(y);
    Ok(a + b + u32::try_from(user.id.len()).unwrap_or(0))
}

#[distributed_lock(key = "{type}:{r#match.id}")]
async fn raw(r#type: u32, r#match: Order) -> Result<u64, LockError> {
    Ok(u64::from(r#type) + r#match.id)
}

struct Shop {
    id: u64,
    names: Vec<String>,
}

const REGION: &str = "eu";

impl Shop {
    const PREFIX: &'static str = "shop";

    fn name(&self, at: usize) -> &str {
        &self.names[at]
    }

    #[distributed_lock(key = "{Self::PREFIX}:{self.id}")]
    async fn by_ref(&self) -> Result<String, LockError> {
        macro_rules! mine {
            () => {
                self.id
            };
        }
        Ok(format!("{}{}", mine!(), self.names.len()))
    }

    #[distributed_lock(key = "{Self::PREFIX}:{self.names[0]}:{self.name(1)}")]
    async fn by_mut(&mut self) -> Result<(), LockError> {
        self.id += 1;
        Ok(())
    }

    #[distributed_lock(key = "{REGION}:{crate::REGION}:{self.id}")]
    async fn by_value(mut self) -> Result<Self, LockError> {
        self.id = 7;
        Ok(Self { ..self })
    }

    #[distributed_lock(key = "a:{self.id:04}", ttl = "10ms")]
    async fn by_arc(self: Arc<Self>, other: u8) -> Result<u64, LockError> {
        Ok(self.id + u64::from(other))
    }

    #[distributed_lock(key = "new:{id:x}:{id:#X}:{id:#010b}:{id:hash}")]
    pub async fn new(id: u64) -> Result<Self, LockError> {
        Ok(Self { id, names: vec![] })
    }
}

trait Store {
    fn save(&self, id: u64) -> impl Future<Output = Result<(), LockError>> + Send;

    #[distributed_lock(key = "default:{id}")]
    async fn load(&self, id: u64) -> Result<u64, LockError>
    where
        Self: Sync,
    {
        Ok(id)
    }
}

impl Store for Shop {
    #[distributed_lock(key = "save:{id}:{self.id}")]
    async fn save(&self, id: u64) -> Result<(), LockError> {
        let _ = id;
        Ok(())
    }
}

#[distributed_lock(key = "r:{n}")]
async fn recursive(n: u32) -> Result<u32, LockError> {
    if n == 0 { Ok(0) } else { Box::pin(recursive(n - 1)).await }
}

#[distributed_lock(key = "cfg:{id}")]
async fn configured(id: u64, #[cfg(any())] gone: Missing, #[cfg(not(any()))] here: u64) -> Result<u64, LockError> {
    #[cfg(any())]
    drop(gone);
    Ok(id + here)
}

#[distributed_lock(key = "{{shop:{shop}}}:coupon:{id}")]
async fn hash_tag(shop: u32, id: u32) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "order#123 for ünïcode")]
async fn odd_literal() -> Result<(), LockError> {
    Ok(())
}

/// Documented.
#[must_use]
#[inline]
#[deprecated]
#[distributed_lock(key = r#"raw "{id}""#)]
#[allow(clippy::unused_async)]
pub(crate) async fn attributes(id: u64) -> Result<(), LockError> {
    #![allow(unused_variables)]
    let unused = 1;
    Ok(())
}

mod inner {
    use super::*;

    #[distributed_lock(key = "same:{id}", lease = lease)]
    pub(super) async fn claim(id: u64) -> Result<u64, LockError> {
        const LOCAL: u64 = 1;
        fn helper() -> u64 {
            LOCAL
        }
        let _ = lease.key();
        Ok(lease.fencing_token() + helper())
    }
}

#[distributed_lock(key = "same:{id}")]
async fn claim(id: u64) -> Result<u64, LockError> {
    Ok(1)
}

fn main() {}

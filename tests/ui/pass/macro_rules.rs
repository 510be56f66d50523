//! Functions made by `macro_rules!`, with fragments in every place.
#![deny(warnings)]
#![allow(dead_code)]

use distlock::{LockError, distributed_lock};

macro_rules! make {
    ($name:ident, $key:literal, $ttl:expr, $arg:ident: $ty:ty, $ret:ty, $pat:pat) => {
        #[distributed_lock(key = $key, ttl = $ttl)]
        async fn $name($arg: $ty, $pat: (u8, u8)) -> Result<$ret, LockError> {
            Ok(<$ret>::from($arg))
        }
    };
}

make!(first, "first:{id}", "5s", id: u32, u64, (_a, _));
make!(second, "second:{name}", "500ms", name: String, String, _);

macro_rules! methods {
    ($ty:ident, $prefix:literal) => {
        impl $ty {
            #[distributed_lock(key = "m:{self.id}:{id}")]
            async fn get(&self, id: u32) -> Result<u32, LockError> {
                let _ = $prefix;
                Ok(self.id + id)
            }

            #[distributed_lock(key = "m:{id}")]
            async fn fresh(id: u32) -> Result<u32, LockError> {
                Ok(id)
            }
        }
    };
}

struct Shop {
    id: u32,
}

methods!(Shop, "shop");

fn main() {}

//! The crate under another path.
#![deny(warnings)]
#![allow(dead_code)]

mod mine {
    pub mod locks {
        pub use distlock::*;
    }
}

use mine::locks::{LockError, distributed_lock};

#[distributed_lock(key = "a:{id}", crate = crate::mine::locks)]
async fn claim(id: u32) -> Result<u32, LockError> {
    Ok(id)
}

macro_rules! make {
    ($name:ident) => {
        #[distributed_lock(key = "a:{id}", crate = $crate::mine::locks)]
        async fn $name(id: u32) -> Result<u32, LockError> {
            Ok(id)
        }
    };
}

make!(made);

#[distributed_lock(keys(for id in ids => "a:{id}"), crate = mine::locks)]
async fn each(ids: Vec<u32>) -> Result<u32, LockError> {
    Ok(1)
}

#[distributed_lock(key = text, label = "text", crate = mine::locks, after_ok = keep("1h"))]
async fn computed(text: String) -> Result<String, LockError> {
    Ok(text)
}

fn main() {}

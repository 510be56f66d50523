//! Names of the user never meet names of the expansion.
#![deny(warnings)]
#![allow(dead_code, non_camel_case_types, unused_macros)]

use distlock::{LockError, distributed_lock};

mod core {}
mod std {}

struct Result;
struct Some;
struct None;
#[allow(non_snake_case)]
fn Ok() {}

macro_rules! concat {
    ($($t:tt)*) => {
        compile_error!("the user's own concat")
    };
}
macro_rules! format_args {
    ($($t:tt)*) => {
        compile_error!("the user's own format_args")
    };
}

type Answer = ::core::result::Result<u32, LockError>;

#[distributed_lock(key = "{key}:{guard}:{lock}:{manager}:{ttl}:{__key}:{__start}", lease = call)]
async fn claim(key: u32, guard: u32, lock: u32, manager: u32, ttl: u32, __key: u32, __start: u32) -> Answer {
    let __call = call.key().len();
    let _ = __call;
    Answer::Ok(key + guard + lock + manager + ttl + __key + __start)
}

mod other {
    use super::*;

    #[distributed_lock(key = "x", ttl = TTL)]
    pub async fn claim() -> Answer {
        const TTL: u32 = 1;
        const SPEC: u32 = TTL;
        Answer::Ok(SPEC)
    }

    const TTL: ::core::time::Duration = ::core::time::Duration::from_secs(1);
}

fn main() {}

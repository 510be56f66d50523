//! One line above an async function makes it exclusive across every process that shares a Redis.

pub use distlock_runtime::*;

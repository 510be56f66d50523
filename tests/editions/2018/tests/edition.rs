//! The shared checks, compiled in edition 2018.

#[path = "../../shared/checks.rs"]
mod checks;

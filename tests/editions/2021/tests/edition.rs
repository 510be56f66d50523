//! The shared checks, compiled in edition 2021.

#[path = "../../shared/checks.rs"]
mod checks;

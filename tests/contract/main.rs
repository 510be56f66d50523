//! The contract of one locked call, rule by rule, through the public interface.
//!
//! Each file is one topic. Logic is tested in memory under paused time; what a server has a say in is tested on a real
//! one; no test sleeps to make sure.

mod bad_input;
mod by_hand;
mod cancel;
mod loss;
mod managers;
mod reentrance;
mod release;
mod several;
mod support;
mod waiting;

//! Several independent servers: the real runtime and the real client over embedded servers, in virtual time; in `real` over
//! real ones.
//!
//! Each file is one topic. Whatever happens there happens at the same moment in every run.

mod amnesia;
mod basics;
mod combinations;
mod faults;
mod real;
mod support;
mod waiting;

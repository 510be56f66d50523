//! Several independent servers: the real runtime and the real client over embedded servers, in virtual time.
//!
//! Each file is one topic. Whatever happens here happens at the same moment in every run.

mod amnesia;
mod basics;
mod combinations;
mod faults;
mod support;
mod waiting;

//! The contract under faults: the real runtime and the real client over an embedded server, in virtual time.
//!
//! Each file is one topic. Whatever happens here happens at the same moment in every run.

mod cancelled;
mod crowd;
mod deadlines;
mod doctor;
mod hand_on;
mod hostile;
mod options;
mod releases;
mod renewals;
mod replies;
mod several;
mod support;
mod waiting;

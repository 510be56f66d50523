//! The test of this package stands in `tests`.

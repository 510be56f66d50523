//! The tests of this package stand in `tests`.

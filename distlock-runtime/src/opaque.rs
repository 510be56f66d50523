//! A box that the compiler does not look into when it asks whether something is `Send` or `Sync`.
//!
//! It asks that of every locked function that a task is to run, and follows every field of everything a call has to
//! do with. Each step of the way counts against the `recursion_limit` of the user's crate, and so does each function
//! around the call: the longer the way, the fewer locked functions can call each other.

use std::fmt;
use std::ops::Deref;

pub(crate) struct Opaque<T>(Box<dyn Deref<Target = T> + Send + Sync>);

impl<T: Send + Sync + 'static> Opaque<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Box::new(Inside(value)))
    }
}

impl<T> Deref for Opaque<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Default + Send + Sync + 'static> Default for Opaque<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: fmt::Debug> fmt::Debug for Opaque<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// What stands behind the `dyn`.
struct Inside<T>(T);

impl<T> Deref for Inside<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

//! What the loop of `keys(for …)` goes through: a list of the caller's, by reference, for the body wants it too. Whether the
//! list itself stands there or something that points to one, its type says; how a method can ask a type, see
//! [`whole`](crate::whole).

use std::ops::Deref;

/// A list that has a place.
#[derive(Debug)]
pub struct Items<'a, T: ?Sized>(pub &'a T);

/// First: the list itself.
pub trait ItemsOf {
    /// Goes through it.
    type Iter: Iterator;

    /// From its beginning.
    fn items(self) -> Self::Iter;
}

impl<'a, T: ?Sized> ItemsOf for &Items<'a, T>
where
    &'a T: IntoIterator,
{
    type Iter = <&'a T as IntoIterator>::IntoIter;

    fn items(self) -> Self::Iter {
        self.0.into_iter()
    }
}

/// Second: a reference or a pointer to one.
pub trait ItemsBehind {
    /// Goes through it.
    type Iter: Iterator;

    /// From its beginning.
    fn items(self) -> Self::Iter;
}

impl<'a, T: Deref + ?Sized> ItemsBehind for &&Items<'a, T>
where
    &'a T::Target: IntoIterator,
{
    type Iter = <&'a T::Target as IntoIterator>::IntoIter;

    fn items(self) -> Self::Iter {
        self.0.deref().into_iter()
    }
}

/// Last: neither.
pub trait NoItems {
    /// What is no list.
    type Value: ?Sized;

    /// Says what a list may be.
    fn items(self) -> std::iter::Empty<<Self::Value as Iterable>::Thing>
    where
        Self::Value: Iterable;
}

impl<T: ?Sized> NoItems for &mut &Items<'_, T> {
    type Value = T;

    fn items(self) -> std::iter::Empty<T::Thing>
    where
        T: Iterable,
    {
        std::iter::empty()
    }
}

/// Implemented by nothing: its message is what matters.
#[diagnostic::on_unimplemented(
    message = "`keys(for ..)` cannot go through `{Self}` by reference",
    label = "not a list of things",
    note = "a list such as `Vec<u64>` or `&[u64]` is lent to the loop; an iterator is written so that it makes a new one, as in `order.items.iter()`"
)]
pub trait Iterable {
    /// What it is a list of.
    type Thing;
}

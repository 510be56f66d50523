//! A short list that lives inside its owner: states are copied, compared and hashed by the million.
//!
//! It panics when it overflows. A model that outgrows its bounds must stop instead of leaving states out.

use std::fmt;
use std::ops::Deref;

/// At most `N` values in order. Unused places hold the default, so that equal lists are equal bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Few<T, const N: usize> {
    items: [T; N],
    len: u8,
}

impl<T: Copy + Default, const N: usize> Default for Few<T, N> {
    fn default() -> Self {
        Few { items: [T::default(); N], len: 0 }
    }
}

impl<T: Copy + Default, const N: usize> Few<T, N> {
    pub(crate) fn insert(&mut self, at: usize, item: T) {
        let len = self.len();
        assert!(len < N, "the model has outgrown a list of {N}");
        self.items.copy_within(at..len, at + 1);
        self.items[at] = item;
        self.len += 1;
    }

    pub(crate) fn push(&mut self, item: T) {
        self.insert(self.len(), item);
    }

    pub(crate) fn remove(&mut self, at: usize) -> T {
        let item = self[at];
        let len = self.len();
        self.items.copy_within(at + 1..len, at);
        self.items[len - 1] = T::default();
        self.len -= 1;
        item
    }

    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        for at in (0..self.len()).rev() {
            if !keep(&self[at]) {
                self.remove(at);
            }
        }
    }

    pub(crate) fn as_mut(&mut self) -> &mut [T] {
        &mut self.items[..usize::from(self.len)]
    }
}

impl<T, const N: usize> Deref for Few<T, N> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.items[..usize::from(self.len)]
    }
}

impl<T: fmt::Debug, const N: usize> fmt::Debug for Few<T, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::Few;

    #[test]
    fn what_was_removed_leaves_no_trace() {
        let mut list: Few<u8, 3> = Few::default();
        list.push(1);
        list.push(3);
        list.insert(1, 2);
        assert_eq!(&*list, [1, 2, 3]);
        list.retain(|&item| item == 3);
        let mut other = Few::default();
        other.push(3);
        assert_eq!(list, other);
    }

    #[test]
    #[should_panic = "outgrown"]
    fn too_much_is_an_error() {
        let mut list: Few<u8, 1> = Few::default();
        list.push(1);
        list.push(2);
    }
}

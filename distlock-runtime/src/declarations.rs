//! What a lock is taken on: a plain text, a typed declaration, or several of them together; and what a lease on it proves.
//!
//! A declaration is a type with `#[derive(LockKey)]`. It makes the key out of its fields, brings its settings along, and
//! names the *witness* that a lease carries as a type. Several declarations locked together are a tuple.

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;

use crate::error::LockError;
use crate::key::Keys;
use crate::lease::Lease;
use crate::settings::Settings;

/// The static facts of one declaration, as the macros write them. It is built at compile time and lives in the binary's
/// constants.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// Module path and name of the function or the type.
    pub function: &'static str,
    /// The key template as it was written.
    pub template: &'static str,
    /// The template with its placeholders blanked.
    pub label: &'static str,
    /// Where the attribute stands.
    pub file: &'static str,
    /// Where the attribute stands.
    pub line: u32,
    /// Where the attribute stands.
    pub column: u32,
}

/// What a lock can be taken on: a text, a declaration with `#[derive(LockKey)]`, a tuple of up to six of either, or a
/// list of texts.
///
/// It is implemented by the derive and by this crate, not by hand.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let locks = distlock_runtime::LockManager::in_memory();
/// let lease = locks.lock("invoice:7").acquire().await?;
/// assert_eq!(lease.key(), "invoice:7");
/// # Ok(()) }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is nothing a lock can be taken on",
    label = "neither a text nor a declaration",
    note = "give a text such as `\"order:7\"`, or a type with `#[derive(LockKey)]` and `#[lock(key = \"order:{{id}}\")]`"
)]
pub trait LockKey {
    /// What a lease on this key proves: the declaration itself, `()` for a plain text, [`Several`] for a list of texts.
    type Witness: 'static;

    /// What the declaration and its set say.
    #[doc(hidden)]
    const SETTINGS: Settings;

    /// The keys, made from references and copies.
    #[doc(hidden)]
    fn keys(self) -> Result<Keys, LockError>;
}

/// Witness of a lock on a list of plain keys: `Lease<Several>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Several;

/// A witness of a lock on one key, which is what has a fencing token: for code that is generic over what is locked.
///
/// It is implemented by the derive and by this crate, not by hand.
#[diagnostic::on_unimplemented(
    message = "a lease on several keys has a fencing token for each of them, not one",
    label = "needs a lease on one key",
    note = "take the part you mean, as in `lease.part::<OrderLock>().fencing_token()`, or go through `lease.fencing_tokens()`"
)]
pub trait OneKey: 'static {
    /// Tells the declarations apart while the crate is built, where types cannot be compared.
    #[doc(hidden)]
    const IDENTITY: Identity;
}

impl OneKey for () {
    const IDENTITY: Identity = Identity { name: "()", arguments: &[] };
}

/// The name of a type: where it is declared, and with which arguments.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub struct Identity {
    /// Its path and place.
    pub name: &'static str,
    /// Its type and const arguments.
    pub arguments: &'static [Argument],
}

/// One argument of a type.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub enum Argument {
    /// A type.
    Type(Identity),
    /// The value of a constant.
    Value(u128),
}

impl Identity {
    const fn is(&self, other: &Self) -> bool {
        if !same_text(self.name, other.name) || self.arguments.len() != other.arguments.len() {
            return false;
        }
        let mut at = 0;
        while at < self.arguments.len() {
            let same = match (&self.arguments[at], &other.arguments[at]) {
                (Argument::Type(a), Argument::Type(b)) => a.is(b),
                (Argument::Value(a), Argument::Value(b)) => *a == *b,
                _ => false,
            };
            if !same {
                return false;
            }
            at += 1;
        }
        true
    }
}

const fn same_text(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    let mut at = 0;
    while at < a.len() {
        if a[at] != b[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// The witnesses of declarations that are locked together: a tuple.
#[diagnostic::on_unimplemented(
    message = "a lease on `{Self}` has no parts",
    label = "not a lease on several declarations",
    note = "`part` is for a lock on `[A {{ .. }}, B {{ .. }}]`, whose lease is a `Lease<(A, B)>`"
)]
#[doc(hidden)]
pub trait Parts {
    /// Who they are, in their order.
    const IDENTITIES: &'static [Identity];

    /// A lease on each of them, which releases nothing.
    fn leases<L>(whole: &Lease<L>) -> Views;
}

/// Leases on the parts of a lease, each a `Lease<W>` of its own witness.
#[doc(hidden)]
pub(crate) type Views = Box<[Box<dyn Any + Send + Sync>]>;

/// Where the part stands. A part that is not there fails the build of the program.
pub(crate) const fn place_of<L: Parts, P: OneKey>() -> usize {
    let mut found = None;
    let mut at = 0;
    while at < L::IDENTITIES.len() {
        if L::IDENTITIES[at].is(&P::IDENTITY) {
            assert!(
                found.is_none(),
                "the lock has this part twice, so `part` cannot tell which one is meant; go through `fencing_tokens()`"
            );
            found = Some(at);
        }
        at += 1;
    }
    match found {
        Some(place) => place,
        None => panic!("the lock has no such part; name one of the declarations that it locks"),
    }
}

macro_rules! texts {
    ($([$($generics:tt)*] $ty:ty, $text:ident => $own:expr;)*) => {$(
        impl $($generics)* LockKey for $ty {
            type Witness = ();
            const SETTINGS: Settings = Settings::INHERIT;

            fn keys(self) -> Result<Keys, LockError> {
                let $text = self;
                Ok(Keys::one($own))
            }
        }

        impl $($generics)* Text for $ty {
            fn into_text(self) -> String {
                let $text = self;
                $own
            }
        }
    )*};
}

/// A text in a list of keys.
#[diagnostic::on_unimplemented(
    message = "a list of `{Self}` is nothing a lock can be taken on",
    label = "a list of keys holds texts",
    note = "lock several declarations together as a tuple, as in `locks.lock((Order {{ .. }}, Shop {{ .. }}))`"
)]
#[doc(hidden)]
pub trait Text {
    /// The text itself.
    fn into_text(self) -> String;
}

texts! {
    [] String, text => text;
    [] &str, text => text.to_owned();
    [] &String, text => text.clone();
    [] Cow<'_, str>, text => text.into_owned();
    [] Box<str>, text => text.into();
    [] Arc<str>, text => text.as_ref().to_owned();
}

macro_rules! lists {
    ($([$($generics:tt)*] $ty:ty;)*) => {$(
        impl<$($generics)*> LockKey for $ty {
            type Witness = Several;
            const SETTINGS: Settings = Settings::INHERIT;

            fn keys(self) -> Result<Keys, LockError> {
                Keys::several(self.into_iter().map(|text| Ok(Keys::one(text.into_text()))))
            }
        }
    )*};
}

lists! {
    [T: Text] Vec<T>;
    [T: Text, const N: usize] [T; N];
}

macro_rules! borrowed_lists {
    ($([$($generics:tt)*] $ty:ty;)*) => {$(
        impl<T: AsRef<str>, $($generics)*> LockKey for &$ty {
            type Witness = Several;
            const SETTINGS: Settings = Settings::INHERIT;

            fn keys(self) -> Result<Keys, LockError> {
                Keys::several(self.iter().map(|text| Ok(Keys::one(text.as_ref().to_owned()))))
            }
        }
    )*};
}

borrowed_lists! {
    [] [T];
    [] Vec<T>;
    [const N: usize] [T; N];
}

macro_rules! tuples {
    ($(($($part:ident $at:tt)*))*) => {$(
        impl<$($part),*> LockKey for ($($part,)*)
        where
            $($part: LockKey, $part::Witness: OneKey,)*
        {
            type Witness = ($($part::Witness,)*);
            const SETTINGS: Settings = Settings::INHERIT $(.beside($part::SETTINGS))*;

            fn keys(self) -> Result<Keys, LockError> {
                Keys::several([$(self.$at.keys()),*])
            }
        }

        impl<$($part: OneKey),*> Parts for ($($part,)*) {
            const IDENTITIES: &'static [Identity] = &[$($part::IDENTITY),*];

            fn leases<L>(whole: &Lease<L>) -> Views {
                Box::new([$(Box::new(whole.view_of::<$part>($at)) as Box<dyn Any + Send + Sync>),*])
            }
        }
    )*};
}

tuples! {
    (A 0 B 1)
    (A 0 B 1 C 2)
    (A 0 B 1 C 2 D 3)
    (A 0 B 1 C 2 D 3 E 4)
    (A 0 B 1 C 2 D 3 E 4 F 5)
}

/// The struct that `lock_set!` makes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no lock set",
    label = "expected the struct of a lock set",
    note = "make one with `distlock::lock_set! {{ pub Locks {{ namespace = \"billing\" }} }}`"
)]
#[doc(hidden)]
pub trait LockSet {
    /// What its declarations inherit.
    const SETTINGS: Settings;
    /// Where their keys are, if not in the manager's namespace.
    const NAMESPACE: Option<&'static str>;
    /// A path into the crate that declares it.
    const MODULE: &'static str;
}

/// The keys of a declaration in a set of this namespace.
#[doc(hidden)]
pub fn in_set(keys: Result<Keys, LockError>, namespace: Option<&'static str>) -> Result<Keys, LockError> {
    match namespace {
        Some(namespace) => keys.map(|keys| keys.in_namespace(namespace)),
        None => keys,
    }
}

/// Whether two paths begin with the same crate.
#[doc(hidden)]
pub const fn same_crate(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut at = 0;
    loop {
        let (a_ends, b_ends) = (at >= a.len() || a[at] == b':', at >= b.len() || b[at] == b':');
        if a_ends || b_ends {
            return a_ends && b_ends;
        }
        if a[at] != b[at] {
            return false;
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_are_told_apart_by_their_whole_name() {
        assert!(same_crate("shop::locks", "shop"));
        assert!(same_crate("shop::locks", "shop::orders"));
        assert!(!same_crate("shop::locks", "shop_two::locks"));
        assert!(!same_crate("shop", "ship"));
    }

    #[test]
    fn identities_compare_their_arguments_too() {
        const SHOP: Identity = Identity { name: "shop", arguments: &[] };
        const fn with(arguments: &'static [Argument]) -> Identity {
            Identity { name: "pair", arguments }
        }
        assert!(SHOP.is(&SHOP) && !SHOP.is(&with(&[])));
        assert!(
            with(&[Argument::Type(SHOP), Argument::Value(1)]).is(&with(&[Argument::Type(SHOP), Argument::Value(1)]))
        );
        assert!(!with(&[Argument::Value(1)]).is(&with(&[Argument::Value(2)])));
        assert!(!with(&[Argument::Value(1)]).is(&with(&[])));
        assert!(!with(&[Argument::Type(SHOP)]).is(&with(&[Argument::Value(0)])));
    }
}

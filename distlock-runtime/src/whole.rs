//! A computed key, taken whole: a text, or a value of a type that declares a lock. Which one it is, its type says; a text
//! comes first, for texts can be locked by hand as well.
//!
//! Rust has no "if the type can do this, else that", but a method call looks at the type itself before it looks at
//! references to it. So the attribute calls `keys` on a `&Whole`, and each possibility stands one reference further.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

use crate::declarations::LockKey;
use crate::error::{Config, LockError};
use crate::key::Keys;
use crate::settings::Settings;

/// The value of `key = EXPR`.
pub struct Whole<T>(Cell<Option<T>>);

/// The keys, what their declaration says, and what a lease on them proves.
pub type KeysOf<W> = (Result<Keys, LockError>, Settings, PhantomData<fn() -> W>);

impl<T> Whole<T> {
    /// Not taken yet.
    pub fn new(value: T) -> Self {
        Self(Cell::new(Some(value)))
    }

    fn take(&self) -> Result<T, LockError> {
        // It is asked once; a second time would find nothing.
        self.0.take().ok_or_else(|| Config::new("a computed key was taken twice").into())
    }
}

impl<T> fmt::Debug for Whole<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Whole")
    }
}

/// First: a text.
pub trait WholeText {
    /// The text.
    fn keys(self) -> KeysOf<()>;
}

impl<T: AsRef<str>> WholeText for &Whole<T> {
    fn keys(self) -> KeysOf<()> {
        (self.take().map(|text| Keys::one(text.as_ref().to_owned())), Settings::INHERIT, PhantomData)
    }
}

/// Second: a declaration.
pub trait WholeDeclaration {
    /// What its lease proves.
    type Witness;

    /// Its keys.
    fn keys(self) -> KeysOf<Self::Witness>;
}

impl<T: LockKey> WholeDeclaration for &&Whole<T> {
    type Witness = T::Witness;

    fn keys(self) -> KeysOf<T::Witness> {
        (self.take().and_then(LockKey::keys), T::SETTINGS, PhantomData)
    }
}

/// Last: neither.
pub trait WholeNeither {
    /// What is locked.
    type Value;

    /// Says what a key may be.
    fn keys(self) -> KeysOf<()>
    where
        Self::Value: WholeKey;
}

impl<T> WholeNeither for &mut &Whole<T> {
    type Value = T;

    fn keys(self) -> KeysOf<()>
    where
        T: WholeKey,
    {
        (Err(Config::new("this value is no key").into()), Settings::INHERIT, PhantomData)
    }
}

/// Implemented by nothing: its message is what matters.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no lock key",
    label = "neither a text nor a declared lock",
    note = "`key = EXPR` takes a value that is `AsRef<str>`, such as a `String`, or one of a `#[derive(LockKey)]` type",
    note = "of a number or another value write a template, as in `key = \"order:{{id}}\"`"
)]
pub trait WholeKey {}

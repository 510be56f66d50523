//! The stages of the attribute as a plain library. A crate that defines macros cannot be linked, but its stages know
//! nothing of the compiler: they turn tokens into tokens. So the very same files are built here, without the entry point.
//!
//! ```console
//! $ cargo install cargo-fuzz
//! $ cargo +nightly fuzz run attribute
//! $ cargo +nightly fuzz run template
//! ```
//!
//! `cargo test -p distlock-macros soup` does the same with random tokens on a stable compiler.
#![allow(dead_code)]

use std::str::FromStr;

use proc_macro2::{Literal, TokenStream};

#[path = "../../distlock-macros/src"]
mod stages {
    pub(crate) mod attribute;
    pub(crate) mod declaration;
    pub(crate) mod diagnostics;
    pub(crate) mod duration;
    pub(crate) mod expand;
    pub(crate) mod fallback;
    pub(crate) mod free;
    pub(crate) mod function;
    pub(crate) mod key;
    pub(crate) mod lints;
    pub(crate) mod options;
    pub(crate) mod shape;
    pub(crate) mod source;
    pub(crate) mod template;
    pub(crate) mod valid;
    pub(crate) mod values;
}

// They find each other from the root.
use stages::{attribute, declaration, diagnostics, duration, expand, fallback, free, function, key, lints, options, shape, source, template, valid, values};

const FUNCTION: &str = "async fn f(id: u64, (a, b): (u8, u8), tx: &mut Transaction<'_, D>) -> Result<impl X, E> { a }";

/// The attribute up to the first null character, and the item behind it; an `async fn` if there is none.
pub fn attribute(text: &str) {
    let (attribute, item) = text.split_once('\0').unwrap_or((text, FUNCTION));
    if let (Ok(attribute), Ok(item)) = (TokenStream::from_str(attribute), TokenStream::from_str(item)) {
        answers(attribute, item);
    }
}

/// The text as the template of a key, of one of several, and of each thing in a list.
pub fn template(text: &str) {
    let template = Literal::string(text);
    let item = || TokenStream::from_str(FUNCTION).expect("it is Rust");
    answers(quote::quote!(key = #template), item());
    answers(quote::quote!(keys = [#template, "b:{id}"]), item());
    answers(quote::quote!(keys(for x in &ids => #template)), item());
}

/// Whatever comes, the answer is code: that of the function, or errors beside it.
fn answers(attribute: TokenStream, item: TokenStream) {
    let empty = item.is_empty();
    let expanded = function::expand(attribute, item);
    assert!(empty || !expanded.is_empty(), "the function is gone");
}

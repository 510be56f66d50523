//! The attribute on a function from beginning to end: tokens in, tokens out, whatever the tokens are.

use proc_macro2::TokenStream;

use crate::{attribute, diagnostics, expand, fallback, key, shape, valid};

/// The function under its lock, or the errors beside the item as it was.
pub(crate) fn expand(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = diagnostics::Errors::default();
    let options = attribute::parse(attribute, &mut errors);
    let Some(function) = shape::parse(item.clone(), &mut errors) else {
        return fallback::beside(errors, item);
    };
    let key = key::read(&options, &function, &mut errors);
    valid::check(&options, &function, &mut errors);
    match key {
        Some(key) if errors.is_empty() => expand::expand(&options, &function, &key),
        _ => fallback::beside(errors, item),
    }
}

//! The attribute macro of distlock. Use it through the crate `distlock`, which re-exports it and documents it.
//!
//! The stages are parse (`attribute`, `source`, `values`, `duration`, `shape`, `key`, `template`), check (`valid`,
//! `lints`) and expand (`expand`, the only one that writes code); `function` goes through them. What stands beside an
//! error is `fallback`'s.

mod attribute;
mod diagnostics;
mod duration;
mod expand;
mod fallback;
mod free;
mod function;
mod key;
mod lints;
mod options;
mod shape;
mod source;
mod template;
#[cfg(test)]
mod tests;
mod valid;
mod values;

#[doc = include_str!("distributed_lock.md")]
#[proc_macro_attribute]
pub fn distributed_lock(attribute: proc_macro::TokenStream, item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    function::expand(attribute.into(), item.into()).into()
}

//! Typed locks in the attribute: values of declarations, made from the arguments before anything else happens.
//!
//! ```text
//! let (__key, __declared, __witness) = match (CouponLock { campaign, user: user.id }, ShopLock { id }) {
//!     __lock => typed(__lock),
//! };
//! ```
//!
//! The user's tokens stand there as they are, so the compiler itself says which field is missing, unknown or of another
//! type. An argument that is not `Copy` cannot move into a field: the body captures whatever the key mentions.

use proc_macro2::{Delimiter, Ident, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;

use super::{Expansion, grouped, own, private};
use crate::source::TypedLock;

impl Expansion<'_> {
    /// The statement that makes the keys of the locks, under this name.
    pub(super) fn typed(&self, key: &Ident, locks: &[TypedLock]) -> TokenStream {
        let [declared, witness] = ["__declared", "__witness"].map(own);
        let value = match locks {
            [one] if one.fields.is_none() => one.to_token_stream(),
            // In brackets, which a `match` wants around a value with braces.
            [one] => grouped(Delimiter::Parenthesis, one.to_token_stream(), one.path.span()).into_token_stream(),
            several => {
                // At the place of the first lock, where a type that declares none is shown.
                let span = several.first().map_or_else(Span::mixed_site, |lock| lock.path.span());
                grouped(Delimiter::Parenthesis, quote!(#(#several),*), Span::mixed_site().located_at(span))
                    .into_token_stream()
            }
        };
        let span = Span::mixed_site().located_at(locks.first().map_or_else(Span::mixed_site, |lock| lock.path.span()));
        let lock = Ident::new("__lock", span);
        let arguments = grouped(Delimiter::Parenthesis, lock.to_token_stream(), span);
        let p = private(span);
        // By a name, so that a type which is no declaration is shown once, and in a `match`, so that what the fields borrow
        // lives as long as the value.
        let typed = quote_spanned!(span=> #p::typed #arguments);
        quote_spanned!(span=> let (#key, #declared, #witness) = match #value { #lock => #typed };)
    }
}

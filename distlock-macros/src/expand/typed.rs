//! Typed locks in the attribute: values of declarations, made from the arguments before anything else happens.
//!
//! ```text
//! let (__key, __declared, __witness) = typed(|| (CouponLock { campaign, user: user.id }, ShopLock { id }));
//! ```
//!
//! The user's tokens stand there as they are, so the compiler itself says which field is missing, unknown or of another
//! type. They stand in a closure that can be called more than once, so that an argument which is not `Copy` cannot be
//! moved into the key instead of into the body.

use proc_macro2::{Delimiter, Ident, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;

use super::{Expansion, grouped, own};
use crate::source::TypedLock;

impl Expansion<'_> {
    /// The statement that makes the keys of the locks, under this name.
    pub(super) fn typed(&self, key: &Ident, locks: &[TypedLock]) -> TokenStream {
        let p = &self.private;
        let [declared, witness] = ["__declared", "__witness"].map(own);
        let value = match locks {
            [one] => one.to_token_stream(),
            several => {
                // At the place of the first lock, where a type that declares none is shown.
                let span = several.first().map_or_else(Span::mixed_site, |lock| lock.path.span());
                grouped(Delimiter::Parenthesis, quote!(#(#several),*), Span::mixed_site().located_at(span))
                    .into_token_stream()
            }
        };
        let span = Span::mixed_site().located_at(locks.first().map_or_else(Span::mixed_site, |lock| lock.path.span()));
        let closure = quote_spanned!(span=> || #value);
        let arguments = grouped(Delimiter::Parenthesis, closure, span);
        let typed = Ident::new("typed", span);
        quote_spanned!(Span::mixed_site()=> let (#key, #declared, #witness) = #p::#typed #arguments;)
    }
}

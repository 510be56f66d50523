//! What stands in the body's future in front of the user's statements.

use std::collections::BTreeSet;

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::{Expr, Lifetime};

use super::{Expansion, own};
use crate::attribute::{Given, Handler, Refused};
use crate::free::names_in;

impl Expansion<'_> {
    /// Names every argument that the body needs, the last one first: so each is captured whole, and all are dropped in
    /// the order in which a plain function drops them. Names that begin with `_` are guards as often as not. Others that
    /// nothing mentions keep their warning.
    pub(super) fn captures(&self, statements: &TokenStream) -> TokenStream {
        let mut mentioned: BTreeSet<String> = self.key.mentions.clone();
        let mut texts = Vec::new();
        names_in(statements, &mut mentioned, &mut texts);
        for handler in self.handlers() {
            names_in(&handler.body.to_token_stream(), &mut mentioned, &mut texts);
        }
        let is_needed = |name: &str| {
            name.starts_with('_')
                || mentioned.contains(name)
                || texts.iter().any(|text| text.contains(&format!("{{{name}")))
        };
        let needed =
            self.function.bindings.iter().rev().filter(|binding| is_needed(&binding.ident.unraw().to_string()));
        needed
            .map(|binding| {
                let (cfgs, ident) = (&binding.cfgs, &binding.ident);
                let allowed = ident.to_string().starts_with('_').then(|| {
                    quote_spanned!(Span::mixed_site()=> #[allow(clippy::used_underscore_binding, reason = "named to be captured")])
                });
                quote_spanned!(Span::mixed_site()=> #(#cfgs)* #allowed let _ = &#ident;)
            })
            .collect()
    }

    /// The closures that are pasted into the body's future.
    fn handlers(&self) -> impl Iterator<Item = &Handler> {
        [&self.options.on_busy, &self.options.on_error].into_iter().flatten().filter_map(|given| match &given.value {
            Refused::Closure(handler) => Some(&**handler),
            Refused::Error | Refused::Skip => None,
        })
    }

    /// How the body learns what became of the lock. Without a lease to bind and a closure to run it need not ask.
    pub(super) fn opening(&self, start: &Ident) -> Option<TokenStream> {
        let p = &self.private;
        let closure = |given: &'_ Option<Given<Refused>>| match given {
            Some(Given { value: Refused::Closure(handler), .. }) => {
                Some((handler.pattern.clone(), handler.body.clone()))
            }
            _ => None,
        };
        let lease = self.options.lease.as_ref().map(|given| &given.value);
        let (busy, error) = (closure(&self.options.on_busy), closure(&self.options.on_error));
        if lease.is_none() && busy.is_none() && error.is_none() {
            return None;
        }
        let [refusal, value] = ["__refusal", "__value"].map(own);
        let output = self.output();
        let arm = |variant: &str, handler: Option<(syn::Pat, Expr)>| {
            let variant = own(variant);
            let consequence = match handler {
                Some((pattern, body)) => {
                    let body = pasted(&body);
                    // The value in a statement of its own: what is allowed for the `return` is not allowed in EXPR.
                    quote_spanned! {Span::mixed_site()=> {
                        let #pattern = #refusal;
                        #[allow(clippy::diverging_sub_expression, reason = "the closure may diverge")]
                        let #value: #output = #body;
                        #[allow(unreachable_code, reason = "the closure may diverge")]
                        return #value;
                    }}
                }
                // The struct ends the call itself where there is no closure.
                None => quote_spanned!(Span::mixed_site()=> #p::polled_without_lease(&#refusal)),
            };
            quote_spanned!(Span::mixed_site()=> #p::Opened::#variant(#refusal) => #consequence,)
        };
        let (busy, error) = (arm("Busy", busy), arm("Failed", error));
        let open = self.open(start);
        Some(match lease {
            Some(lease) => {
                // By the user's own name, so that the compiler can name what a borrow outlives; the borrow hides it at once.
                let view = lease;
                let borrow = quote_spanned!(lease.span()=> &#view);
                let allowed = quote_spanned!(Span::mixed_site()=> #[allow(clippy::shadow_reuse, clippy::shadow_same, reason = "the body has the borrow only")]);
                quote_spanned! {Span::mixed_site()=>
                    let #view = match #open { #p::Opened::Held(#view) => #view, #busy #error };
                    #allowed
                    let #lease = #borrow;
                }
            }
            None => quote_spanned! {Span::mixed_site()=>
                match #open { #p::Opened::Held(_) => {} #busy #error }
            },
        })
    }
}

/// The body of a closure as the value of a `return`; braces of the user get a label, as the body does.
fn pasted(body: &Expr) -> TokenStream {
    match body {
        Expr::Block(block) if block.label.is_none() => {
            let label = Lifetime::new("'__distlock_policy", block.block.brace_token.span.open());
            quote!(#label: #block)
        }
        other => quote!(#other),
    }
}

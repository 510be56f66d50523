//! How the call ends when it has no lease, and how the type of its body is pinned.

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote_spanned;
use syn::Type;
use syn::spanned::Spanned;

use super::Expansion;
use super::types::nameable;
use crate::attribute::{Given, Handler, OnLost, Refused};

impl Expansion<'_> {
    pub(super) fn policies(&self, spec: &Ident) -> TokenStream {
        let p = &self.private;
        let refusal = |given: &Option<Given<Refused>>, skip: &str| {
            let value = given.as_ref().map_or(&Refused::Error, |given| &given.value);
            match value {
                Refused::Error => {
                    let fail = self.fail();
                    quote_spanned!(Span::mixed_site()=> #p::OnRefusal::Fail(#fail))
                }
                Refused::Skip => {
                    let skip = self.of_output(skip);
                    quote_spanned!(Span::mixed_site()=> #p::OnRefusal::Skip(#skip))
                }
                Refused::Closure(_) => quote_spanned!(Span::mixed_site()=> #p::OnRefusal::Closure),
            }
        };
        let busy = refusal(&self.options.on_busy, "skip_busy");
        let error = refusal(&self.options.on_error, "skip_error");
        let lost = match self.options.on_lost.as_ref().map_or(&OnLost::Cancel, |given| &given.value) {
            OnLost::Cancel => {
                let fail = self.fail();
                quote_spanned!(Span::mixed_site()=> #p::OnLost::Fail(#fail))
            }
            OnLost::Finish => quote_spanned!(Span::mixed_site()=> #p::OnLost::Finish),
            OnLost::Closure(handler) => {
                let Handler { span, pattern, body } = &**handler;
                // At its place, but not the user's own: lints about closures do not know what the option takes.
                let span = Span::mixed_site().located_at(*span);
                let closure = quote_spanned!(span=> |#pattern| #body);
                quote_spanned!(Span::mixed_site()=> #p::OnLost::Value(#closure))
            }
        };
        quote_spanned!(Span::mixed_site()=> #p::Policies { spec: #spec, busy: #busy, error: #error, lost: #lost })
    }

    /// The function that makes the output of a failure. Its name says which options would make it superfluous, so that
    /// one error of the compiler can name them all.
    fn fail(&self) -> TokenStream {
        let busy = matches!(self.options.on_busy, None | Some(Given { value: Refused::Error, .. }));
        let error = matches!(self.options.on_error, None | Some(Given { value: Refused::Error, .. }));
        let lost = matches!(self.options.on_lost, None | Some(Given { value: OnLost::Cancel, .. }));
        let name = match (busy, error, lost) {
            (true, true, true) => "fail_busy_error_lost",
            (true, true, false) => "fail_busy_error",
            (true, false, true) => "fail_busy_lost",
            (true, false, false) => "fail_busy",
            (false, true, true) => "fail_error_lost",
            (false, true, false) => "fail_error",
            (false, false, _) => "fail_lost",
        };
        self.of_output(name)
    }

    /// `NAME::<OUTPUT>`, shown at the return type.
    fn of_output(&self, name: &str) -> TokenStream {
        let p = &self.private;
        let span = match &self.function.output {
            Some(ty) => ty.span(),
            None => self.function.sig.ident.span(),
        };
        let name = Ident::new(name, Span::mixed_site().located_at(span));
        let output = self.output();
        quote_spanned!(Span::mixed_site()=> #p::#name::<#output>)
    }

    /// The return type as it can stand inside the function.
    pub(super) fn output(&self) -> TokenStream {
        match &self.function.output {
            None => quote_spanned!(self.function.sig.ident.span()=> ()),
            Some(Type::Never(_)) => quote_spanned!(Span::mixed_site()=> _),
            Some(ty) => nameable(ty),
        }
    }

    /// A return of the right type that is never reached: with it the compiler knows what the body must give, coerces to
    /// it and points at the user's expression when it does not fit.
    pub(super) fn edge(&self) -> Option<TokenStream> {
        let p = &self.private;
        let ty = match &self.function.output {
            Some(Type::Never(_)) => return None,
            Some(ty) => nameable(ty),
            None => quote_spanned!(Span::mixed_site()=> ()),
        };
        let span =
            Span::mixed_site().located_at(self.function.output.as_ref().map_or_else(Span::mixed_site, Spanned::span));
        let output = Ident::new("__output", span);
        let returned = quote_spanned!(span=> return #output;);
        Some(quote_spanned! {Span::mixed_site()=>
            if let #p::core::option::Option::Some(#output) = #p::core::option::Option::None::<#ty> { #returned }
        })
    }
}

//! How the call ends when it has no lease, and how the type of its body is pinned.

use proc_macro2::{Delimiter, Ident, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{ExprPath, Type};

use super::registry::entry;
use super::types::nameable;
use super::{Expansion, grouped, own, private};
use crate::attribute::{Given, Handler, OnLost, Refused};

/// What becomes of a call without a lease.
pub(super) enum Policies {
    /// Every failure is an error, made by this function.
    Failing(TokenStream),
    /// As options say.
    Various(TokenStream),
}

impl Expansion<'_> {
    pub(super) fn policies(&self) -> Policies {
        let p = &self.private;
        let mut asked = Asked { expansion: self, output: self.output(), answered: Vec::new() };
        let mut refusal = |given: &Option<Given<Refused>>, skips: &str, arguments: &[Ident]| {
            let value = given.as_ref().map_or(&Refused::Error, |given| &given.value);
            match value {
                Refused::Error => None,
                Refused::Skip => {
                    let skip = asked.function(skips, "skipped", arguments);
                    asked.answer(skips);
                    Some(quote_spanned!(Span::mixed_site()=> #p::OnRefusal::Skip(#skip)))
                }
                Refused::Closure(_) => Some(quote_spanned!(Span::mixed_site()=> #p::OnRefusal::Closure)),
            }
        };
        let busy = refusal(&self.options.on_busy, "SkipBusy", &[own("__busy")]);
        let error = refusal(&self.options.on_error, "SkipError", &[]);
        let err = own("__err");
        let fail = match &self.options.map_err {
            None => asked.function(self.carries(), "of", &[err]),
            Some(Given { value: map, .. }) => {
                let failed = asked.mapped(map, &err);
                quote_spanned!(Span::mixed_site()=> |#err| #failed)
            }
        };
        let asks = self.options.after_ok.is_some() || self.options.after_err.is_some();
        if busy.is_none() && error.is_none() && self.is_cancelled() && !asks {
            return Policies::Failing(fail);
        }
        let fails = || quote_spanned!(Span::mixed_site()=> #p::OnRefusal::Fail(#fail));
        let (busy, error) = (busy.unwrap_or_else(fails), error.unwrap_or_else(fails));
        let lost = match self.options.on_lost.as_ref().map_or(&OnLost::Cancel, |given| &given.value) {
            OnLost::Cancel => quote_spanned!(Span::mixed_site()=> #p::OnLost::Fail(#fail)),
            OnLost::Finish => quote_spanned!(Span::mixed_site()=> #p::OnLost::Finish),
            OnLost::Closure(handler) => {
                let Handler { span, pattern, body } = &**handler;
                // At its place, but not the user's own: lints about closures do not know what the option takes.
                let span = Span::mixed_site().located_at(*span);
                let closure = quote_spanned!(span=> |#pattern| #body);
                quote_spanned!(Span::mixed_site()=> #p::OnLost::Value(#closure))
            }
        };
        let is_ok = if asks {
            let is_ok = asked.member("CanFail", "is_ok");
            quote_spanned!(Span::mixed_site()=> #p::core::option::Option::Some(#is_ok))
        } else {
            quote_spanned!(Span::mixed_site()=> #p::core::option::Option::None)
        };
        let entry = entry();
        Policies::Various(quote_spanned! {Span::mixed_site()=>
            #p::Policies { entry: &#entry, busy: #busy, error: #error, lost: #lost, is_ok: #is_ok }
        })
    }

    fn is_cancelled(&self) -> bool {
        matches!(self.options.on_lost, None | Some(Given { value: OnLost::Cancel, .. }))
    }

    /// The trait of an output that carries a failure. It says which options would make it superfluous, so that one error
    /// of the compiler can name them all.
    fn carries(&self) -> &'static str {
        let busy = matches!(self.options.on_busy, None | Some(Given { value: Refused::Error, .. }));
        let error = matches!(self.options.on_error, None | Some(Given { value: Refused::Error, .. }));
        let lost = self.is_cancelled();
        match (busy, error, lost) {
            (true, true, true) => "CarriesBusyErrorLost",
            (true, true, false) => "CarriesBusyError",
            (true, false, true) => "CarriesBusyLost",
            (true, false, false) => "CarriesBusy",
            (false, true, true) => "CarriesErrorLost",
            (false, true, false) => "CarriesError",
            (false, false, _) => "CarriesLost",
        }
    }

    /// Where the return type begins and where it ends.
    fn output_span(&self) -> (Span, Span) {
        let tokens = match &self.function.output {
            Some(ty) => ty.to_token_stream(),
            None => self.function.sig.ident.to_token_stream(),
        };
        let spans: Vec<Span> = tokens.into_iter().map(|token| token.span()).collect();
        let name = self.function.sig.ident.span();
        (spans.first().copied().unwrap_or(name), spans.last().copied().unwrap_or(name))
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
        let ty = match &self.function.output {
            Some(Type::Never(_)) => return None,
            Some(ty) => nameable(ty),
            None => quote_spanned!(Span::mixed_site()=> ()),
        };
        let span =
            Span::mixed_site().located_at(self.function.output.as_ref().map_or_else(Span::mixed_site, Spanned::span));
        let p = private(span);
        let returned = quote_spanned!(span=> return #p::never_returned::<#ty>(););
        Some(quote_spanned!(Span::mixed_site()=> if false { #returned }))
    }
}

/// What was asked of the return type so far. A type that cannot say one thing is not asked whether it can say another:
/// each question is put to the type that the answer to the one before names, and what that makes is turned back.
struct Asked<'a> {
    expansion: &'a Expansion<'a>,
    output: TokenStream,
    /// `<OUTPUT as TRAIT>::itself` of every question, the first one first.
    answered: Vec<TokenStream>,
}

impl Asked<'_> {
    /// The function of this name in the trait, made one that gives the return type. It is the trait's own and not one of
    /// ours with a bound, which the compiler would quote.
    fn function(&self, of: &str, name: &str, arguments: &[Ident]) -> TokenStream {
        let function = self.member(of, name);
        if self.answered.is_empty() {
            return function;
        }
        // Everything at the place of the return type, for the compiler reports one fault once for each place.
        let (_, last) = self.expansion.output_span();
        let turned = self.turned_back(quote_spanned!(last=> #function(#(#arguments),*)), last);
        quote_spanned!(Span::mixed_site()=> |#(#arguments),*| #turned)
    }

    /// The return type with the error that the user's function makes of the one in hand.
    fn mapped(&self, map: &ExprPath, err: &Ident) -> TokenStream {
        let function = self.member_with("MapsError", "failed", &quote!(<_>));
        let span = Span::mixed_site().located_at(map.span());
        let (_, last) = self.expansion.output_span();
        let made = grouped(Delimiter::Parenthesis, quote_spanned!(span=> #map(#err)), span);
        self.turned_back(quote!(#function #made), last)
    }

    fn turned_back(&self, made: TokenStream, place: Span) -> TokenStream {
        self.answered.iter().rev().fold(made, |made, back| {
            let made = grouped(Delimiter::Parenthesis, made, place);
            quote!(#back #made)
        })
    }

    /// What comes after is asked of the type that the trait names.
    fn answer(&mut self, of: &str) {
        let can_be_asked = match &self.expansion.function.output {
            // `()` can be skipped.
            None => false,
            Some(Type::Tuple(tuple)) => !tuple.elems.is_empty(),
            // It is to be inferred.
            Some(Type::Never(_) | Type::ImplTrait(_)) => false,
            Some(_) => true,
        };
        if can_be_asked {
            self.answered.push(self.member(of, "itself"));
            self.output = self.member(of, "Itself");
        }
    }

    /// `<OUTPUT as TRAIT>::NAME`, shown at the return type.
    fn member(&self, of: &str, name: &str) -> TokenStream {
        self.member_with(of, name, &TokenStream::new())
    }

    fn member_with(&self, of: &str, name: &str, arguments: &TokenStream) -> TokenStream {
        let (first, last) = self.expansion.output_span();
        let span = Span::mixed_site().located_at(first);
        let p = private(span);
        let (of, name, output) = (Ident::new(of, span), Ident::new(name, last), &self.output);
        let opening = quote_spanned!(first=> <);
        quote_spanned!(span=> #opening #output as #p::#of #arguments>::#name)
    }
}

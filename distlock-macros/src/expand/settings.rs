//! The settings of the call: literals become values, constants are checked at build, everything else is evaluated once.

use proc_macro2::{Delimiter, Ident, Literal, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Expr, GenericParam};

use super::{Expansion, grouped, own, private};
use crate::attribute::{After, Given, Options, Renew, Time, Wait};

/// Where settings are written.
#[derive(Clone, Copy)]
pub(super) enum Place {
    /// In the function, where they are evaluated when it is.
    Body,
    /// In an item, where they are evaluated while the crate is checked.
    Item,
}

impl Expansion<'_> {
    /// `CHECK(VALUE)`, shown at the value.
    fn checked(&self, check: &str, value: &Expr) -> TokenStream {
        let span = Span::mixed_site().located_at(value.span());
        let p = private(span);
        let check = Ident::new(check, span);
        let arguments = grouped(Delimiter::Parenthesis, quote!(#value), span);
        quote_spanned!(span=> #p::#check #arguments)
    }

    /// Whether a constant can stand in an item: an item may use neither `Self` nor the parameters of the function, and
    /// those of an impl block around it are out of sight, so only modules may stand in front of the name.
    pub(super) fn is_free(&self, constant: &Expr) -> bool {
        let Expr::Path(path) = constant else { return false };
        let Some((name, modules)) = path
            .path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string())
            .collect::<Vec<_>>()
            .split_last()
            .map(|(name, modules)| (name.clone(), modules.to_vec()))
        else {
            return false;
        };
        let is_parameter = self.function.sig.generics.params.iter().any(|param| match param {
            GenericParam::Type(param) => param.ident == name,
            GenericParam::Const(param) => param.ident == name,
            GenericParam::Lifetime(_) => false,
        });
        path.qself.is_none() && !is_parameter && !modules.iter().any(|module| module.starts_with(char::is_uppercase))
    }

    /// The settings of a call that not all are known at build: those that it computes, and the others as declared.
    pub(super) fn settings(&self) -> TokenStream {
        self.settings_in(Place::Body)
    }

    /// The settings that belong to the place.
    pub(super) fn settings_in(&self, place: Place) -> TokenStream {
        let p = &self.private;
        let Options { ttl, wait, renew, max_hold, min_hold, after_ok, after_err, reentrant, .. } = self.options;
        let known = |time: &Time, check: &str| self.time(time, check, place);
        let computed = self.computed();
        let mut tokens = match place {
            Place::Body => self.declared_settings(),
            Place::Item => quote_spanned!(Span::mixed_site()=> #p::INHERIT),
        };
        let mut push = |name: &str, value: &dyn Fn() -> TokenStream| {
            let is_body = matches!(place, Place::Body);
            if computed.contains(&name) == is_body {
                let (name, value) = (own(name), value());
                tokens.extend(quote_spanned!(Span::mixed_site()=> .#name(#value)));
            }
        };
        if let Some(Given { value, .. }) = ttl {
            push("ttl", &|| known(value, "checked_ttl"));
        }
        if let Some(Given { value, .. }) = wait {
            push("wait", &|| match value {
                Wait::Forever => quote_spanned!(Span::mixed_site()=> #p::Wait::Forever),
                Wait::For(time) => {
                    let time = known(time, "duration");
                    quote_spanned!(Span::mixed_site()=> #p::Wait::For(#time))
                }
            });
        }
        if let Some(Given { value, .. }) = renew {
            push("renew", &|| match value {
                Renew::Auto => quote_spanned!(Span::mixed_site()=> #p::Renew::Auto),
                Renew::Off => quote_spanned!(Span::mixed_site()=> #p::Renew::Off),
                Renew::Every(time) => {
                    let time = known(time, "checked_renew");
                    quote_spanned!(Span::mixed_site()=> #p::Renew::Every(#time))
                }
            });
        }
        if let Some(Given { value, .. }) = max_hold {
            push("max_hold", &|| known(value, "duration"));
        }
        if let Some(Given { value, .. }) = min_hold {
            push("min_hold", &|| known(value, "checked_min_hold"));
        }
        for (name, after) in [("after_ok", after_ok), ("after_err", after_err)] {
            if let Some(Given { value: After::Keep(time), .. }) = after {
                push(name, &|| known(time, "checked_keep"));
            }
        }
        if let Some(Given { value, .. }) = reentrant {
            push("reentrant", &|| quote!(#value));
        }
        tokens
    }

    fn time(&self, time: &Time, check: &str, place: Place) -> TokenStream {
        let p = &self.private;
        match time {
            Time::Literal(duration, _) => {
                // The macro has refused durations beyond `u64` milliseconds.
                let millis = Literal::u64_suffixed(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX));
                quote_spanned!(Span::mixed_site()=> #p::millis(#millis))
            }
            Time::Constant(constant) => {
                let checked = self.checked(check, constant);
                match place {
                    Place::Body => quote_spanned!(Span::mixed_site()=> const { #checked }),
                    Place::Item => checked,
                }
            }
            Time::Computed(value) => self.checked("duration", value),
        }
    }
}

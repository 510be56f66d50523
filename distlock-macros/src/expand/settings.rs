//! The settings of the call: literals become values, constants are checked at build, everything else is evaluated once.

use proc_macro2::{Delimiter, Ident, Literal, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Expr, GenericParam};

use super::{Expansion, grouped, own, private};
use crate::attribute::{After, Given, Options, Renew, Time, Wait};

impl Expansion<'_> {
    /// Constants are checked while the crate is checked, not only where the function is instantiated.
    pub(super) fn checks(&self) -> TokenStream {
        let p = &self.private;
        self.constants()
            .into_iter()
            .filter(|(_, constant)| self.is_free(constant))
            .map(|(check, constant)| {
                let checked = self.checked(check, constant);
                quote_spanned!(Span::mixed_site()=> const _: #p::Duration = #checked;)
            })
            .collect()
    }

    /// `CHECK(VALUE)`, shown at the value.
    fn checked(&self, check: &str, value: &Expr) -> TokenStream {
        let span = Span::mixed_site().located_at(value.span());
        let p = private(self.options, span);
        let check = Ident::new(check, span);
        let arguments = grouped(Delimiter::Parenthesis, quote!(#value), span);
        quote_spanned!(span=> #p::#check #arguments)
    }

    /// Every constant among the options with the function that checks it.
    fn constants(&self) -> Vec<(&'static str, &Expr)> {
        let Options { ttl, wait, renew, max_hold, min_hold, after_ok, after_err, .. } = self.options;
        let mut times = Vec::new();
        times.extend(ttl.as_ref().map(|given| ("checked_ttl", &given.value)));
        times.extend(max_hold.as_ref().map(|given| ("duration", &given.value)));
        times.extend(min_hold.as_ref().map(|given| ("checked_min_hold", &given.value)));
        if let Some(Given { value: Wait::For(time), .. }) = wait {
            times.push(("duration", time));
        }
        if let Some(Given { value: Renew::Every(time), .. }) = renew {
            times.push(("checked_renew", time));
        }
        for after in [after_ok, after_err].into_iter().flatten() {
            if let After::Keep(time) = &after.value {
                times.push(("checked_keep", time));
            }
        }
        times
            .into_iter()
            .filter_map(|(check, time)| match time {
                Time::Constant(constant) => Some((check, constant)),
                Time::Literal(..) | Time::Computed(_) => None,
            })
            .collect()
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

    pub(super) fn settings(&self) -> TokenStream {
        self.settings_but(&[])
    }

    /// The settings without those of these names.
    pub(super) fn settings_but(&self, left_out: &[&str]) -> TokenStream {
        let p = &self.private;
        let some = |value: TokenStream| quote_spanned!(Span::mixed_site()=> #p::core::option::Option::Some(#value));
        let Options { ttl, wait, renew, max_hold, min_hold, after_ok, after_err, reentrant, .. } = self.options;
        let mut fields = Vec::new();
        let mut push = |name: &str, value: TokenStream| {
            if left_out.contains(&name) {
                return;
            }
            let (name, value) = (own(name), some(value));
            fields.push(quote_spanned!(Span::mixed_site()=> #name: #value));
        };
        if let Some(Given { value, .. }) = ttl {
            push("ttl", self.time(value, "checked_ttl"));
        }
        if let Some(Given { value, .. }) = wait {
            let value = match value {
                Wait::Forever => quote_spanned!(Span::mixed_site()=> #p::Wait::Forever),
                Wait::For(time) => {
                    let time = self.time(time, "duration");
                    quote_spanned!(Span::mixed_site()=> #p::Wait::For(#time))
                }
            };
            push("wait", value);
        }
        if let Some(Given { value, .. }) = renew {
            let value = match value {
                Renew::Auto => quote_spanned!(Span::mixed_site()=> #p::Renew::Auto),
                Renew::Off => quote_spanned!(Span::mixed_site()=> #p::Renew::Off),
                Renew::Every(time) => {
                    let time = self.time(time, "checked_renew");
                    quote_spanned!(Span::mixed_site()=> #p::Renew::Every(#time))
                }
            };
            push("renew", value);
        }
        if let Some(Given { value, .. }) = max_hold {
            push("max_hold", self.time(value, "duration"));
        }
        if let Some(Given { value, .. }) = min_hold {
            push("min_hold", self.time(value, "checked_min_hold"));
        }
        for (name, after) in [("after_ok", after_ok), ("after_err", after_err)] {
            if let Some(Given { value: After::Keep(time), .. }) = after {
                push(name, self.time(time, "checked_keep"));
            }
        }
        if let Some(Given { value, .. }) = reentrant {
            push("reentrant", quote!(#value));
        }
        quote_spanned!(Span::mixed_site()=> #p::Settings { #(#fields,)* ..#p::INHERIT })
    }

    fn time(&self, time: &Time, check: &str) -> TokenStream {
        let p = &self.private;
        match time {
            Time::Literal(duration, _) => {
                // The macro has refused durations beyond `u64` milliseconds.
                let millis = Literal::u64_suffixed(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX));
                quote_spanned!(Span::mixed_site()=> #p::Duration::from_millis(#millis))
            }
            Time::Constant(constant) => {
                let checked = self.checked(check, constant);
                quote_spanned!(Span::mixed_site()=> const { #checked })
            }
            Time::Computed(value) => self.checked("duration", value),
        }
    }
}

//! What the program's list of declarations learns of this one, as a static inside of the function, which may stand twice.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::Type;
use syn::ext::IdentExt;

use super::settings::Place;
use super::{Expansion, own};
use crate::attribute::{After, Given, OnLost, Options, Refused, Renew, Time, Wait};
use crate::duration::show;
use crate::key::Key;
use crate::shape::ungroup;
use crate::template::{Part, Placeholder, Spec, Template};

/// The types whose values are decimal digits and perhaps a sign.
const INTEGERS: [&str; 12] = ["u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "i128", "isize"];

/// The static with what is declared. Names of items have no hygiene.
pub(super) fn entry() -> Ident {
    own("__DISTLOCK")
}

impl Expansion<'_> {
    /// That of a function. Its constants are checked here, while the crate is, and not only where the function is
    /// instantiated.
    pub(super) fn registered_function(&self) -> TokenStream {
        let computed = self.computed();
        let own_manager = self.options.manager.as_ref().map(|_| quote_spanned!(Span::mixed_site()=> .on_own_manager()));
        let computes =
            (!computed.is_empty()).then(|| quote_spanned!(Span::mixed_site()=> .computes(&[#(#computed),*])));
        self.registered(&self.settings_in(Place::Item), &quote!(#own_manager #computes))
    }

    /// The static facts of the declaration, and what adds them to the list.
    pub(super) fn registered(&self, settings: &TokenStream, more: &TokenStream) -> TokenStream {
        let p = &self.private;
        let entry = entry();
        let name = self.function.sig.ident.unraw().to_string();
        let Key { text: template, label, .. } = self.key;
        let templates = self.key.form.templates().into_iter().map(|template| self.taken_apart(template));
        let options = self.as_written().into_iter().map(|(name, value)| quote!((#name, #value)));
        quote_spanned! {Span::mixed_site()=>
            static #entry: #p::Entry = #p::Entry::function(
                #p::core::concat!(#p::core::module_path!(), "::", #name),
                #template,
                #label,
                &[#(#templates),*],
                #settings,
                &[#(#options),*]
            ) #more;
            #p::register!(#entry);
        }
    }

    /// The settings that are known at build.
    pub(super) fn declared_settings(&self) -> TokenStream {
        let entry = entry();
        quote_spanned!(Span::mixed_site()=> #entry.declared.settings)
    }

    fn taken_apart(&self, template: &Template) -> TokenStream {
        let p = &self.private;
        let Template { label, separators, .. } = template;
        let text = template.literal.value();
        let pieces = template.parts.iter().map(|part| match part {
            Part::Literal(text) => quote_spanned!(Span::mixed_site()=> #p::Piece::Literal(#text)),
            Part::Value(placeholder) => {
                let form = Ident::new(self.form(placeholder), Span::mixed_site());
                quote_spanned!(Span::mixed_site()=> #p::Piece::#form)
            }
        });
        quote_spanned! {Span::mixed_site()=>
            #p::Template { text: #text, label: #label, separators: #separators, pieces: &[#(#pieces),*] }
        }
    }

    /// What the values of a placeholder look like, as far as the macro can see.
    fn form(&self, placeholder: &Placeholder) -> &'static str {
        if placeholder.is_constant {
            return "Constant";
        }
        match &placeholder.spec {
            Spec::Hash => "Hash",
            Spec::Integer(integer) if integer.radix.is_none() => "Decimal",
            Spec::Integer(_) => "Number",
            Spec::Plain => {
                let ty = self.function.binding(&placeholder.source).and_then(|binding| binding.ty.as_ref());
                if ty.is_some_and(is_integer) { "Decimal" } else { "Text" }
            }
        }
    }

    /// The names of the settings that are not known at build.
    pub(super) fn computed(&self) -> Vec<&'static str> {
        let Options { ttl, wait, renew, max_hold, min_hold, after_ok, after_err, .. } = self.options;
        let renewed = renew.as_ref().and_then(|given| match &given.value {
            Renew::Every(time) => Some(time),
            Renew::Auto | Renew::Off => None,
        });
        let waited = wait.as_ref().and_then(|given| match &given.value {
            Wait::For(time) => Some(time),
            Wait::Forever => None,
        });
        let of = |given: &'_ Option<Given<Time>>| given.as_ref().is_some_and(|given| !self.is_known(&given.value));
        [
            ("ttl", of(ttl)),
            ("max_hold", of(max_hold)),
            ("min_hold", of(min_hold)),
            ("after_ok", kept(after_ok).is_some_and(|time| !self.is_known(time))),
            ("after_err", kept(after_err).is_some_and(|time| !self.is_known(time))),
            ("renew", renewed.is_some_and(|time| !self.is_known(time))),
            ("wait", waited.is_some_and(|time| !self.is_known(time))),
        ]
        .into_iter()
        .filter_map(|(name, is_computed)| is_computed.then_some(name))
        .collect()
    }

    fn is_known(&self, time: &Time) -> bool {
        match time {
            Time::Literal(..) => true,
            Time::Constant(constant) => self.is_free(constant),
            Time::Computed(_) => false,
        }
    }

    /// The options that say how the lock behaves, as the user wrote them.
    fn as_written(&self) -> Vec<(&'static str, String)> {
        let Options { ttl, wait, renew, max_hold, min_hold, after_ok, after_err, reentrant, .. } = self.options;
        let Options { on_busy, on_error, on_lost, .. } = self.options;
        let refused = |given: &Given<Refused>| match &given.value {
            Refused::Error => "error".to_owned(),
            Refused::Skip => "skip".to_owned(),
            Refused::Closure(_) => "|..| ..".to_owned(),
        };
        let all = [
            ("ttl", ttl.as_ref().map(|given| time(&given.value))),
            (
                "wait",
                wait.as_ref().map(|given| match &given.value {
                    Wait::Forever => "forever".to_owned(),
                    Wait::For(value) => time(value),
                }),
            ),
            (
                "renew",
                renew.as_ref().map(|given| match &given.value {
                    Renew::Auto => "auto".to_owned(),
                    Renew::Off => "off".to_owned(),
                    Renew::Every(value) => time(value),
                }),
            ),
            ("max_hold", max_hold.as_ref().map(|given| time(&given.value))),
            ("min_hold", min_hold.as_ref().map(|given| time(&given.value))),
            ("after_ok", after_ok.as_ref().map(after)),
            ("after_err", after_err.as_ref().map(after)),
            ("reentrant", reentrant.as_ref().map(|given| if given.value { "allow" } else { "error" }.to_owned())),
            ("on_busy", on_busy.as_ref().map(refused)),
            ("on_error", on_error.as_ref().map(refused)),
            (
                "on_lost",
                on_lost.as_ref().map(|given| match &given.value {
                    OnLost::Cancel => "cancel".to_owned(),
                    OnLost::Finish => "finish".to_owned(),
                    OnLost::Closure(_) => "|..| ..".to_owned(),
                }),
            ),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

/// How long the key is kept, if it is.
fn kept(given: &Option<Given<After>>) -> Option<&Time> {
    match &given.as_ref()?.value {
        After::Keep(time) => Some(time),
        After::Release => None,
    }
}

fn after(given: &Given<After>) -> String {
    match &given.value {
        After::Release => "release".to_owned(),
        After::Keep(value) => format!("keep({})", time(value)),
    }
}

fn time(time: &Time) -> String {
    match time {
        Time::Literal(duration, _) => show(*duration),
        Time::Constant(value) | Time::Computed(value) => value.to_token_stream().to_string(),
    }
}

fn is_integer(ty: &Type) -> bool {
    matches!(ungroup(ty), Type::Path(path) if path.path.get_ident().is_some_and(|name| INTEGERS.iter().any(|integer| name == integer)))
}

//! Typed declarations, lock sets and key segments, from the model to code.
//!
//! ```text
//! // Input
//! #[derive(LockKey)]
//! #[lock(key = "order:{id}", ttl = "5s", set = Locks)]
//! struct OrderLock { id: u64 }
//!
//! // Output
//! const _: () = {
//!     const SETTINGS: Settings = INHERIT.ttl(…).or(<Locks as LockSet>::SETTINGS);
//!     impl LockKey for OrderLock {
//!         type Witness = Self;
//!         const SETTINGS: Settings = SETTINGS;
//!         fn keys(self) -> Result<Keys, LockError> { LockKey::keys(&self) }
//!     }
//!     impl LockKey for &OrderLock {                                       // one that is named elsewhere is borrowed
//!         type Witness = OrderLock;
//!         const SETTINGS: Settings = SETTINGS;
//!         fn keys(self) -> Result<Keys, LockError> {
//!             let OrderLock { id } = self;
//!             in_set(KeyBuilder::new(":", "order:").value("id", &*id, "").finish(), <Locks as LockSet>::NAMESPACE)
//!         }
//!     }
//!     impl OneKey for OrderLock { const IDENTITY: Identity = …; }
//!     impl Locks { const lock_order_x3a_v_: () = (); }                    // a second one is a second definition
//!     static __DISTLOCK: Entry = Entry::function(…).of_type(…);
//!     register!(__DISTLOCK);
//! };
//! ```

use proc_macro2::{Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{DeriveInput, GenericParam, Generics, WherePredicate, parse_quote};

use super::key::Names;
use super::settings::Place;
use super::{Expansion, import, private};
use crate::attribute::Options;
use crate::declaration::{Declaration, LockSet, Segment};
use crate::key::Key;
use crate::template::Template;

/// The settings as a constant: one evaluation, so that what is wrong with them is one error.
const OWN_SETTINGS: &str = "__DISTLOCK_SETTINGS";

/// `#[derive(LockKey)]`.
pub(crate) fn lock_key(declaration: Declaration) -> TokenStream {
    let Declaration { input, options, function, template, set, witness } = declaration;
    let key = Key::of_declaration(template);
    let (options, function, set, witness) = (&options, &function, &set, &witness);
    let expansion = Expansion { options, function, key: &key, private: private(Span::mixed_site()) };
    let p = &expansion.private;
    let generics = bounded(&input.generics, p);
    let Split { impl_generics, ty_generics, where_clause } = split(&generics);
    let name = &input.ident;
    let set = set.as_ref().map_or_else(TokenStream::new, |set| quote!(#set));
    let settings = expansion.settings_in(Place::Item);
    let keys: TokenStream =
        key.form.templates().into_iter().map(|template| expansion.made(template, Names::References)).collect();
    let (settings, keys) = if set.is_empty() {
        (settings, keys)
    } else {
        (
            quote_spanned!(Span::mixed_site()=> #settings.or(<#set as #p::LockSet>::SETTINGS)),
            quote_spanned!(Span::mixed_site()=> #p::in_set(#keys, <#set as #p::LockSet>::NAMESPACE)),
        )
    };
    let mut fields: Vec<TokenStream> = function.bindings.iter().map(|field| field.ident.to_token_stream()).collect();
    // Markers are not named.
    if matches!(&input.data, syn::Data::Struct(data) if data.fields.len() > fields.len()) {
        fields.push(quote_spanned!(Span::mixed_site()=> ..));
    }
    let has_lifetime = input.generics.lifetimes().next().is_some();
    let itself = quote!(#name #ty_generics);
    let (proof, named, identity) = match witness {
        _ if !has_lifetime => {
            let identity = one_key(p, &impl_generics, &itself, &where_clause, &identity(p, name, &generics));
            (itself.clone(), None, Some(identity))
        }
        Some(witness) => {
            let nothing = TokenStream::new();
            let identity =
                one_key(p, &nothing, &quote!(#witness), &nothing, &identity(p, witness, &Generics::default()));
            (quote!(#witness), Some(named_witness(&input.vis, name, witness)), Some(identity))
        }
        // Several declarations without a witness of their own share this one, which the library knows.
        None => (quote!(()), None, None),
    };
    let namespace = if set.is_empty() {
        quote_spanned!(Span::mixed_site()=> #p::core::option::Option::None)
    } else {
        quote_spanned!(Span::mixed_site()=> <#set as #p::LockSet>::NAMESPACE)
    };
    let own_settings = Ident::new(OWN_SETTINGS, Span::mixed_site());
    let unique = (!set.is_empty()).then(|| unique(p, &set, key.form.templates()));
    let of_type = quote_spanned!(Span::mixed_site()=> .of_type(#namespace));
    let registered = expansion.registered(&quote!(#own_settings), &of_type);
    let import = import(options);
    quote_spanned! {Span::mixed_site()=>
        #named
        const _: () = {
            #import
            const #own_settings: #p::Settings = #settings;
            impl #impl_generics #p::LockKey for #itself #where_clause {
                type Witness = #proof;
                const SETTINGS: #p::Settings = #own_settings;
                fn keys(self) -> #p::core::result::Result<#p::Keys, #p::LockError> {
                    #p::LockKey::keys(&self)
                }
            }
            impl #impl_generics #p::LockKey for &#itself #where_clause {
                type Witness = #proof;
                const SETTINGS: #p::Settings = #own_settings;
                fn keys(self) -> #p::core::result::Result<#p::Keys, #p::LockError> {
                    let #name { #(#fields),* } = self;
                    #keys
                }
            }
            #identity
            #unique
            #registered
        };
    }
}

/// Stands beside an error of the derive, so that the uses of the type are not errors too.
pub(crate) fn lock_key_fallback(input: &DeriveInput) -> TokenStream {
    let p = private(Span::mixed_site());
    let generics = bounded(&input.generics, &p);
    let Split { impl_generics, ty_generics, where_clause } = split(&generics);
    let name = &input.ident;
    let (proof, identity) = if input.generics.lifetimes().next().is_some() {
        (quote!(()), None)
    } else {
        let identity =
            one_key(&p, &impl_generics, &quote!(#name #ty_generics), &where_clause, &identity(&p, name, &generics));
        (quote_spanned!(Span::mixed_site()=> Self), Some(identity))
    };
    let import = import(&Options::default());
    quote_spanned! {Span::mixed_site()=>
        const _: () = {
            #import
            impl #impl_generics #p::LockKey for #name #ty_generics #where_clause {
                type Witness = #proof;
                const SETTINGS: #p::Settings = #p::INHERIT;
                fn keys(self) -> #p::core::result::Result<#p::Keys, #p::LockError> {
                    #p::KeyBuilder::new("", "").finish()
                }
            }
            #identity
        };
    }
}

/// The parts of generics as they stand in an `impl`.
struct Split {
    impl_generics: TokenStream,
    ty_generics: TokenStream,
    where_clause: TokenStream,
}

fn split(generics: &Generics) -> Split {
    let (impl_generics, ty_generics, where_clause) = generics.split_for_impl();
    Split {
        impl_generics: own_lifetimes(quote!(#impl_generics)),
        ty_generics: own_lifetimes(quote!(#ty_generics)),
        where_clause: own_lifetimes(quote!(#where_clause)),
    }
}

/// The tokens with lifetimes of the expansion, so that lints about those of the user leave an `impl` alone.
fn own_lifetimes(tokens: TokenStream) -> TokenStream {
    let mut is_lifetime = false;
    tokens
        .into_iter()
        .map(|mut token| {
            let begins = matches!(&token, TokenTree::Punct(quote) if quote.as_char() == '\'');
            if begins || is_lifetime {
                token.set_span(Span::mixed_site().located_at(token.span()));
            }
            is_lifetime = begins;
            match token {
                TokenTree::Group(group) => {
                    let mut copy = Group::new(group.delimiter(), own_lifetimes(group.stream()));
                    copy.set_span(group.span());
                    TokenTree::Group(copy)
                }
                other => other,
            }
        })
        .collect()
}

/// The generics with what a key needs of each type: that it can stand in one, and that it holds no borrow.
fn bounded(generics: &Generics, p: &Ident) -> Generics {
    let mut generics = generics.clone();
    let params: Vec<Ident> = generics.type_params().map(|param| param.ident.clone()).collect();
    let clause = generics.make_where_clause();
    for param in params {
        let predicate: WherePredicate = parse_quote!(#param: #p::KeySegment + 'static);
        clause.predicates.push(predicate);
    }
    generics
}

fn one_key(
    p: &Ident,
    generics: &TokenStream,
    ty: &TokenStream,
    clause: &TokenStream,
    identity: &TokenStream,
) -> TokenStream {
    quote_spanned! {Span::mixed_site()=>
        impl #generics #p::OneKey for #ty #clause {
            const IDENTITY: #p::Identity = #identity;
        }
    }
}

/// What tells the type apart from all others while the crate is built.
fn identity(p: &Ident, name: &Ident, generics: &Generics) -> TokenStream {
    let arguments = generics.params.iter().filter_map(|param| match param {
        GenericParam::Type(param) => {
            let ident = &param.ident;
            Some(quote_spanned!(Span::mixed_site()=> #p::Argument::Type(<#ident as #p::KeySegment>::IDENTITY)))
        }
        GenericParam::Const(param) => {
            let ident = &param.ident;
            Some(quote_spanned!(Span::mixed_site()=> #p::Argument::Value(#ident as u128)))
        }
        GenericParam::Lifetime(_) => None,
    });
    let text = name.unraw().to_string();
    quote_spanned! {Span::mixed_site()=>
        #p::Identity {
            name: #p::core::concat!(
                #p::core::module_path!(), "::", #text, " ", #p::core::file!(), ":", #p::core::line!(), ":", #p::core::column!()
            ),
            arguments: &[#(#arguments),*],
        }
    }
}

/// The unit struct that `witness` names. It comes through a glob, so that one which the user has written wins.
fn named_witness(vis: &syn::Visibility, name: &Ident, witness: &Ident) -> TokenStream {
    let module = Ident::new(&format!("__distlock_witness_{}", witness.unraw()), Span::mixed_site());
    let doc = format!("Witness that the lock of a [`{name}`] is held.");
    quote_spanned! {Span::mixed_site()=>
        #[doc(hidden)]
        #[allow(non_snake_case)]
        mod #module {
            #[doc = #doc]
            #[allow(dead_code, unreachable_pub, missing_debug_implementations)]
            pub struct #witness;
        }
        #[allow(unused_imports)]
        #[doc(inline)]
        #vis use #module::*;
    }
}

/// An inherent constant of the set that is named after the template: two equal ones are two definitions of one name, and
/// the compiler shows both places.
fn unique(p: &Ident, set: &TokenStream, templates: Vec<&Template>) -> TokenStream {
    let constants = templates.iter().map(|template| {
        let place = template.literal.span();
        let name = Ident::new(&constant_name(&template.label), place);
        quote_spanned!(Span::mixed_site().located_at(place)=> const #name: () = ();)
    });
    let here = Span::mixed_site().located_at(set.span());
    let check = quote_spanned!(here=> #p::own_set(<#set as #p::LockSet>::MODULE, #p::core::module_path!()));
    quote_spanned! {Span::mixed_site()=>
        const _: () = #check;
        #[allow(non_local_definitions)]
        impl #set {
            #(#[allow(non_upper_case_globals, dead_code)] #constants)*
        }
    }
}

/// A name that no other label has: letters and digits stand for themselves, `_v_` for a value, `__` for `_`, and
/// `_x3a_` for any other character.
fn constant_name(label: &str) -> String {
    let mut name = "lock_".to_owned();
    let mut rest = label;
    while let Some(next) = rest.chars().next() {
        if let Some(behind) = rest.strip_prefix("{}") {
            name.push_str("_v_");
            rest = behind;
            continue;
        }
        // A brace is written twice in a label.
        let width = if next == '{' || next == '}' { 2 } else { next.len_utf8() };
        match next {
            '_' => name.push_str("__"),
            next if next.is_ascii_alphanumeric() => name.push(next),
            next => name.push_str(&format!("_x{:x}_", u32::from(next))),
        }
        rest = rest.get(width..).unwrap_or_default();
    }
    name
}

/// `lock_set!`.
pub(crate) fn lock_set(set: &LockSet) -> TokenStream {
    let LockSet { attrs, vis, name, options, namespace } = set;
    let function = crate::shape::Function::of_declaration(name, Vec::new());
    let key = Key::none();
    let expansion = Expansion { options, function: &function, key: &key, private: private(Span::mixed_site()) };
    let p = &expansion.private;
    let import = import(options);
    let (settings, own_settings) = (expansion.settings_in(Place::Item), Ident::new(OWN_SETTINGS, Span::mixed_site()));
    let namespace = match namespace {
        Some(namespace) => quote_spanned!(Span::mixed_site()=> #p::core::option::Option::Some(#namespace)),
        None => quote_spanned!(Span::mixed_site()=> #p::core::option::Option::None),
    };
    let text = name.unraw().to_string();
    quote_spanned! {Span::mixed_site()=>
        #(#attrs)*
        #[allow(dead_code)]
        #[non_exhaustive]
        #vis struct #name;
        const _: () = {
            #import
            const #own_settings: #p::Settings = #settings;
            impl #p::LockSet for #name {
                const SETTINGS: #p::Settings = #own_settings;
                const NAMESPACE: #p::core::option::Option<&'static #p::core::primitive::str> = #namespace;
                const MODULE: &'static #p::core::primitive::str = #p::core::module_path!();
            }
            impl #p::core::fmt::Debug for #name {
                fn fmt(&self, to: &mut #p::core::fmt::Formatter<'_>) -> #p::core::fmt::Result {
                    to.write_str(#text)
                }
            }
        };
    }
}

/// `#[derive(KeySegment)]`; with nothing to print it stands beside an error.
pub(crate) fn key_segment(input: &DeriveInput, options: &Options, segment: Option<&Segment<'_>>) -> TokenStream {
    let p = private(Span::mixed_site());
    let import = import(options);
    let name = &input.ident;
    let mut generics = input.generics.clone();
    let to = super::own("__to");
    let (write, inner) = match segment {
        Some(Segment::Transparent(member, ty)) => {
            let ty = own_lifetimes(ty.to_token_stream());
            let span = Span::mixed_site().located_at(ty.span());
            if mentions_a_parameter(&ty, &generics) {
                generics.make_where_clause().predicates.push(parse_quote!(#ty: #p::KeySegment));
            }
            let segment = quote_spanned!(span=> <#ty as #p::KeySegment>::write_segment);
            (quote_spanned!(Span::mixed_site()=> #segment(&self.#member, #to)), Some((member, ty)))
        }
        Some(Segment::Variants(variants)) => {
            let texts = variants.iter().map(|variant| variant.unraw().to_string());
            let write = quote_spanned! {Span::mixed_site()=>
                #p::core::fmt::Write::write_str(#to, match *self { #(Self::#variants => #texts,)* })
            };
            (write, None)
        }
        None => (
            quote_spanned!(Span::mixed_site()=> { let _ = #to; #p::core::result::Result::Err(#p::core::fmt::Error) }),
            None,
        ),
    };
    let Split { impl_generics, ty_generics, where_clause } = split(&generics);
    let text = name.unraw().to_string();
    let arguments = inner.as_ref().map(|(_, ty)| {
        let span = Span::mixed_site().located_at(ty.span());
        quote_spanned!(span=> #p::Argument::Type(<#ty as #p::KeySegment>::IDENTITY))
    });
    let integer = inner.map(|(member, ty)| {
        let mut generics = generics.clone();
        // Through a lifetime, so that the bound may fail to hold without being an error.
        generics.make_where_clause().predicates.push(parse_quote!(for<'__distlock> #ty: #p::KeyInteger));
        let Split { impl_generics, ty_generics, where_clause } = split(&generics);
        let format = super::own("__format");
        quote_spanned! {Span::mixed_site()=>
            impl #impl_generics #p::KeyInteger for #name #ty_generics #where_clause {
                fn write_integer(&self, #format: #p::IntegerFormat, #to: &mut dyn #p::core::fmt::Write) -> #p::core::fmt::Result {
                    <#ty as #p::KeyInteger>::write_integer(&self.#member, #format, #to)
                }
            }
        }
    });
    quote_spanned! {Span::mixed_site()=>
        const _: () = {
            #import
            impl #impl_generics #p::Sealed for #name #ty_generics #where_clause {}
            impl #impl_generics #p::KeySegment for #name #ty_generics #where_clause {
                const IDENTITY: #p::Identity = #p::Identity {
                    name: #p::core::concat!(#p::core::module_path!(), "::", #text),
                    arguments: &[#arguments],
                };
                fn write_segment(&self, #to: &mut dyn #p::core::fmt::Write) -> #p::core::fmt::Result {
                    #write
                }
            }
            #integer
        };
    }
}

fn mentions_a_parameter(ty: &TokenStream, generics: &Generics) -> bool {
    let (mut names, mut texts) = (std::collections::BTreeSet::new(), Vec::new());
    crate::free::names_in(ty, &mut names, &mut texts);
    generics.type_params().any(|param| names.contains(&param.ident.to_string()))
}

#[cfg(test)]
mod tests {
    use super::constant_name;

    #[test]
    fn constants_are_named_injectively() {
        assert_eq!(constant_name("order:{}"), "lock_order_x3a__v_");
        let labels = [
            "a:{}", "a_{}", "a{}", "a__", "a_", "a_x3a_", "a:", "a_v_", "{{}}", "{}", "{{{}}}", "a:_{}", "a:{}_", "é",
            "xe9",
        ];
        let names: std::collections::BTreeSet<String> = labels.iter().map(|label| constant_name(label)).collect();
        assert_eq!(names.len(), labels.len(), "{names:?}");
    }
}

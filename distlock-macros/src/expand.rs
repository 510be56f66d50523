//! From the model to code. This is the only file that writes tokens of the expansion.
//!
//! ```text
//! // Input
//! #[distributed_lock(key = "coupon:{id}", ttl = "5s", on_busy = |busy| EXPR)]
//! async fn claim(id: u64, user: User) -> Ret { BODY }
//!
//! // Output, names of the expansion with two underscores in front
//! async fn claim(id: u64, user: User) -> Ret {
//!     let __key = KeyBuilder::new(":").literal("coupon:").value("id", &id).finish();
//!     let __settings = Settings { ttl: …, ..Settings::INHERIT };
//!     let __manager = current();
//!     let __spec = const { &Spec { … } };
//!     let __policies = Policies { spec: __spec, … };
//!     let (__call, __start) = call_and_start(__spec, __settings, __manager, __key);
//!     Locked::new(__call, __policies, async move {
//!         if let Some(__output) = None::<Ret> { return __output; }         // pins the type of BODY
//!         let _ = &user; let _ = &id;                                      // last argument first
//!         match __start.open() { Held(_) => {} Busy(__busy) => { let busy = __busy; return EXPR } … }
//!         '__distlock_body: { BODY }
//!     }).await
//! }
//! ```
//!
//! The key is an owned value made in a statement of its own, so none of its temporaries lives across an await and the
//! body may move what the key was made from. The body is given by value to a hand-written future, not to an `async fn`,
//! which would double its size, nor to a nested function, which would lose generics and `Self`. No item with a name is
//! written, because other attributes may emit the function twice.

use std::collections::BTreeSet;

use proc_macro2::{Delimiter, Group, Ident, Literal, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Expr, GenericArgument, GenericParam, Lifetime, PathArguments, Type};

use crate::attribute::{Given, Handler, OnLost, Options, Refused, Renew, Time, Wait};
use crate::shape::{Body, Function};
use crate::template::{Integer, Part, Spec, Template};

pub(crate) fn expand(options: &Options, function: &Function, template: &Template) -> TokenStream {
    let expansion = Expansion { options, function, template, private: private(options, Span::mixed_site()) };
    let Function { attrs, vis, default, sig, block, body, .. } = function;
    let mut tokens = quote!(#(#attrs)* #vis #default #sig);
    let statements = match body {
        Body::Async => expansion.locked(block, true),
        Body::Boxed(boxed) => {
            // `#[async_trait]` has made the whole body one future already; the lock goes inside it.
            let inner = grouped(Delimiter::Brace, expansion.locked(&boxed.block, false), boxed.block.span());
            let head = &boxed.head;
            let arguments = grouped(Delimiter::Parenthesis, quote!(#head #inner), boxed.span);
            let prefix = &boxed.prefix;
            quote!(#prefix #arguments)
        }
    };
    tokens.extend([TokenTree::Group(grouped(Delimiter::Brace, statements, block.span()))]);
    tokens
}

/// The one path under which everything generated stands, shown at a place.
fn private(options: &Options, span: Span) -> TokenStream {
    match &options.krate {
        Some(Given { value: path, .. }) => quote!(#path::__private),
        None => quote_spanned!(span=> ::distlock::__private),
    }
}

struct Expansion<'a> {
    options: &'a Options,
    function: &'a Function,
    template: &'a Template,
    private: TokenStream,
}

/// A name of ours, which no name of the user can meet.
fn own(name: &str) -> Ident {
    Ident::new(name, Span::mixed_site())
}

impl Expansion<'_> {
    fn locked(&self, block: &Group, name_captures: bool) -> TokenStream {
        let p = &self.private;
        let [key, settings, manager, policies, call, start] =
            ["__key", "__settings", "__manager", "__policies", "__call", "__start"].map(own);
        let spec = own("__spec");
        let checks = self.checks();
        let hint = self.hint();
        let key_value = self.key();
        let settings_value = self.settings();
        let manager_value = self.manager();
        let policies_value = self.policies(&spec);
        let spec_value = self.spec();
        let edge = self.edge();
        let captures = name_captures.then(|| self.captures(&block.stream()));
        let opening = self.opening(&start);
        let body = Self::user_block(block);
        let begin = match &opening {
            Some(_) => quote!(let (#call, #start) = #p::call_and_start(#spec, #settings, #manager, #key);),
            None => quote!(let #call = #p::call(#spec, #settings, #manager, #key);),
        };
        quote_spanned! {Span::mixed_site()=>
            #checks
            #hint
            let #key = #key_value;
            let #settings = #settings_value;
            let #manager = #manager_value;
            let #spec = #spec_value;
            let #policies = #policies_value;
            #begin
            #p::Locked::new(#call, #policies, async move {
                #edge
                #captures
                #opening
                #body
            }).await
        }
    }

    // ----- before the call -----

    /// Constants are checked while the crate is checked, not only where the function is instantiated.
    fn checks(&self) -> TokenStream {
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
        let Options { ttl, wait, renew, max_hold, min_hold, .. } = self.options;
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
    fn is_free(&self, constant: &Expr) -> bool {
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

    /// A name in the template that is no argument, shown by the compiler inside the literal. Arguments are hidden by a
    /// wrapper that can always be shown, so that nothing else fails here. Should the name exist after all, as a static
    /// in lower case, the question for a type that nothing answers fails the build.
    fn hint(&self) -> Option<TokenStream> {
        if !self.template.left_to_rustc {
            return None;
        }
        let p = &self.private;
        let literal = &self.template.literal;
        let shown = self
            .function
            .bindings
            .iter()
            .filter(|binding| self.template.mentions.contains(&binding.ident.unraw().to_string()))
            .map(|binding| {
                let cfgs = &binding.cfgs;
                let ident = &binding.ident;
                quote_spanned!(Span::mixed_site()=> #(#cfgs)* let #ident = #p::Shown;)
            });
        Some(quote_spanned! {Span::mixed_site()=>
            if false {
                #(#shown)*
                let _ = #p::core::format_args!(#literal);
                #p::placeholder_is_no_argument();
            }
        })
    }

    fn key(&self) -> TokenStream {
        let p = &self.private;
        let separators = &self.template.separators;
        let mut chain = quote_spanned!(Span::mixed_site()=> #p::KeyBuilder::new(#separators));
        for part in &self.template.parts {
            chain.extend(match part {
                Part::Literal(text) => quote_spanned!(Span::mixed_site()=> .literal(#text)),
                Part::Value(placeholder)
                    if placeholder.tokens.is_empty()
                        || (self.template.left_to_rustc && !self.is_argument(&placeholder.source)) =>
                {
                    TokenStream::new()
                }
                Part::Value(placeholder) => {
                    let (source, tokens) = (&placeholder.source, &placeholder.tokens);
                    let span = Span::mixed_site().located_at(placeholder.span);
                    match placeholder.spec {
                        Spec::Plain => quote_spanned!(span=> .value(#source, &#tokens)),
                        Spec::Hash => quote_spanned!(span=> .hash(#source, &#tokens)),
                        Spec::Integer(format) => {
                            let format = self.integer_format(format);
                            quote_spanned!(span=> .integer(#source, &#tokens, #format))
                        }
                    }
                }
            });
        }
        quote_spanned!(Span::mixed_site()=> #chain.finish())
    }

    fn is_argument(&self, source: &str) -> bool {
        self.function.binding(source).is_some() || source.starts_with(char::is_uppercase)
    }

    fn integer_format(&self, Integer { prefix, width, radix }: Integer) -> TokenStream {
        let p = &self.private;
        let radix = Ident::new(
            match radix {
                None => "Decimal",
                Some('x') => "LowerHex",
                Some('X') => "UpperHex",
                Some('o') => "Octal",
                Some(_) => "Binary",
            },
            Span::mixed_site(),
        );
        quote_spanned!(Span::mixed_site()=> #p::IntegerFormat { radix: #p::Radix::#radix, width: #width, prefix: #prefix })
    }

    fn settings(&self) -> TokenStream {
        let p = &self.private;
        let some = |value: TokenStream| quote_spanned!(Span::mixed_site()=> #p::core::option::Option::Some(#value));
        let Options { ttl, wait, renew, max_hold, min_hold, reentrant, .. } = self.options;
        let mut fields = Vec::new();
        let mut push = |name: &str, value: TokenStream| {
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

    fn manager(&self) -> TokenStream {
        let p = &self.private;
        match &self.options.manager {
            None => quote_spanned!(Span::mixed_site()=> #p::current()),
            Some(Given { value, .. }) => {
                let span = Span::mixed_site().located_at(value.span());
                let p = private(self.options, span);
                let arguments = grouped(Delimiter::Parenthesis, quote_spanned!(span=> &(#value)), span);
                quote_spanned!(span=> #p::manager #arguments)
            }
        }
    }

    /// The static facts of the declaration.
    fn spec(&self) -> TokenStream {
        let p = &self.private;
        let name = self.function.sig.ident.unraw().to_string();
        let (template, label) = (self.template.literal.value(), &self.template.label);
        quote_spanned! {Span::mixed_site()=>
            const {
                &#p::Spec {
                    function: #p::core::concat!(#p::core::module_path!(), "::", #name),
                    template: #template,
                    label: #label,
                    file: #p::core::file!(),
                    line: #p::core::line!(),
                    column: #p::core::column!(),
                }
            }
        }
    }

    // ----- how the call ends -----

    fn policies(&self, spec: &Ident) -> TokenStream {
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
            OnLost::Closure(Handler { pattern, body }) => {
                quote_spanned!(Span::mixed_site()=> #p::OnLost::Value(|#pattern| #body))
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
    fn output(&self) -> TokenStream {
        match &self.function.output {
            None => quote_spanned!(self.function.sig.ident.span()=> ()),
            Some(Type::Never(_)) => quote_spanned!(Span::mixed_site()=> _),
            Some(ty) => nameable(ty),
        }
    }

    /// A return of the right type that is never reached: with it the compiler knows what the body must give, coerces to
    /// it and points at the user's expression when it does not fit.
    fn edge(&self) -> Option<TokenStream> {
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

    // ----- inside the body's future -----

    /// Names every argument that the body needs, the last one first: so each is captured whole, and all are dropped in
    /// the order in which a plain function drops them. Names that begin with `_` are guards as often as not. Others that
    /// nothing mentions keep their warning.
    fn captures(&self, statements: &TokenStream) -> TokenStream {
        let mut mentioned: BTreeSet<String> = self.template.mentions.clone();
        let mut texts = Vec::new();
        mentioned_names(statements, &mut mentioned, &mut texts);
        for handler in self.handlers() {
            mentioned_names(&handler.body.to_token_stream(), &mut mentioned, &mut texts);
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
                quote_spanned!(Span::mixed_site()=> #(#cfgs)* let _ = &#ident;)
            })
            .collect()
    }

    /// The closures that are pasted into the body's future.
    fn handlers(&self) -> impl Iterator<Item = &Handler> {
        [&self.options.on_busy, &self.options.on_error].into_iter().flatten().filter_map(|given| match &given.value {
            Refused::Closure(handler) => Some(handler),
            Refused::Error | Refused::Skip => None,
        })
    }

    /// How the body learns what became of the lock. Without a lease to bind and a closure to run it need not ask.
    fn opening(&self, start: &Ident) -> Option<TokenStream> {
        let p = &self.private;
        let closure = |given: &'_ Option<Given<Refused>>| match given {
            Some(Given { value: Refused::Closure(Handler { pattern, body }), .. }) => {
                Some((pattern.clone(), body.clone()))
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
        let view = own("__view");
        let open = quote_spanned!(Span::mixed_site()=> #start.open::<()>());
        Some(match lease {
            Some(lease) => quote_spanned! {Span::mixed_site()=>
                let #view = match #open { #p::Opened::Held(#view) => #view, #busy #error };
                let #lease = &#view;
            },
            None => quote_spanned! {Span::mixed_site()=>
                match #open { #p::Opened::Held(_) => {} #busy #error }
            },
        })
    }

    /// The user's statements in braces of their own, so that nothing of ours stands in front of their items. The label
    /// keeps lints about superfluous braces away and, in the user's span, gives the block the user's edition.
    fn user_block(block: &Group) -> TokenStream {
        let label = Lifetime::new("'__distlock_body", block.span_open());
        quote!(#label: #block)
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

fn grouped(delimiter: Delimiter, tokens: TokenStream, span: Span) -> Group {
    let mut group = Group::new(delimiter, tokens);
    group.set_span(span);
    group
}

/// Every identifier of the tokens, and every literal that could be a format string.
fn mentioned_names(tokens: &TokenStream, names: &mut BTreeSet<String>, texts: &mut Vec<String>) {
    for token in tokens.clone() {
        match token {
            TokenTree::Ident(ident) => {
                names.insert(ident.unraw().to_string());
            }
            TokenTree::Group(group) => mentioned_names(&group.stream(), names, texts),
            TokenTree::Literal(literal) => texts.extend(Some(literal.to_string()).filter(|text| text.contains('{'))),
            TokenTree::Punct(_) => {}
        }
    }
}

/// The type with every `impl Trait` in it left to inference, for it cannot be written inside the function.
fn nameable(ty: &Type) -> TokenStream {
    if !has_impl(ty.to_token_stream()) {
        return ty.to_token_stream();
    }
    let erased = erase(ty.clone()).to_token_stream();
    if has_impl(erased.clone()) { quote_spanned!(ty.span()=> _) } else { erased }
}

fn has_impl(tokens: TokenStream) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => ident == "impl",
        TokenTree::Group(group) => has_impl(group.stream()),
        _ => false,
    })
}

fn erase(ty: Type) -> Type {
    match ty {
        Type::ImplTrait(ty) => {
            Type::Infer(syn::TypeInfer { attrs: Vec::new(), underscore_token: syn::Token![_](ty.span()) })
        }
        Type::Path(mut path) => {
            for segment in &mut path.path.segments {
                if let PathArguments::AngleBracketed(arguments) = &mut segment.arguments {
                    for argument in &mut arguments.args {
                        if let GenericArgument::Type(ty) = argument {
                            *ty = erase(ty.clone());
                        }
                    }
                }
            }
            Type::Path(path)
        }
        Type::Tuple(mut tuple) => {
            tuple.elems.iter_mut().for_each(|elem| *elem = erase(elem.clone()));
            Type::Tuple(tuple)
        }
        Type::Reference(mut ty) => {
            *ty.elem = erase((*ty.elem).clone());
            Type::Reference(ty)
        }
        Type::Array(mut ty) => {
            *ty.elem = erase((*ty.elem).clone());
            Type::Array(ty)
        }
        Type::Paren(mut ty) => {
            *ty.elem = erase((*ty.elem).clone());
            Type::Paren(ty)
        }
        Type::Group(mut ty) => {
            *ty.elem = erase((*ty.elem).clone());
            Type::Group(ty)
        }
        other => other,
    }
}

//! The key of the call, an owned value made from references before anything else happens.

use proc_macro2::{Delimiter, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::Expr;
use syn::spanned::Spanned;

use super::{Expansion, grouped, own, private};
use crate::key::Form;
use crate::shape::bound_names;
use crate::template::{Integer, Spec, Template};

/// What the names of a template stand for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Names {
    /// An argument.
    Values,
    /// The field of a declaration, which is borrowed.
    References,
}

impl Expansion<'_> {
    /// The statement that makes the key, under this name.
    pub(super) fn key(&self, key: &Ident) -> TokenStream {
        let p = &self.private;
        let value = match &self.key.form {
            Form::One(template) => self.made(template, Names::Values),
            Form::Several(templates) => {
                let keys = templates.iter().map(|template| self.made(template, Names::Values));
                quote_spanned!(Span::mixed_site()=> #p::Keys::several([#(#keys),*]))
            }
            Form::ForEach { pattern, items, template } => {
                let keys = own("__keys");
                let made = self.made(template, Names::Values);
                let items = self.by_reference(items);
                quote_spanned! {Span::mixed_site()=> {
                    let mut #keys = #p::Vec::new();
                    for #pattern in #items {
                        #keys.push(#made);
                    }
                    #p::Keys::several(#keys)
                }}
            }
            Form::Typed(locks) => return self.typed(key, locks),
            Form::Computed(value) => {
                let witness = own("__witness");
                let span = Span::mixed_site().located_at(value.span());
                let p = private(span);
                // What has a place is borrowed, for the body wants it too.
                let value = if is_place(value) { quote_spanned!(span=> &#value) } else { quote!(#value) };
                let arguments = grouped(Delimiter::Parenthesis, value, span);
                let declared = own("__declared");
                return quote_spanned! {span=>
                    let (#key, #declared, #witness) = {
                        #[allow(unused_imports, reason = "one of them fits")]
                        use #p::{WholeDeclaration as _, WholeNeither as _, WholeText as _};
                        (&#p::Whole::new #arguments).keys()
                    };
                };
            }
        };
        quote_spanned!(Span::mixed_site()=> let #key = #value;)
    }

    /// Whether the declaration of a typed lock has settings too, which come second.
    pub(super) fn is_declared(&self) -> bool {
        matches!(self.key.form, Form::Computed(_) | Form::Typed(_))
    }

    /// How the body asks for its lease.
    pub(super) fn open(&self, start: &Ident) -> TokenStream {
        let p = &self.private;
        match &self.key.form {
            Form::One(_) => quote_spanned!(Span::mixed_site()=> #start.open::<()>()),
            Form::Several(_) | Form::ForEach { .. } => {
                quote_spanned!(Span::mixed_site()=> #start.open::<#p::Several>())
            }
            Form::Computed(_) | Form::Typed(_) => {
                let witness = own("__witness");
                quote_spanned!(Span::mixed_site()=> #start.open_for(#witness))
            }
        }
    }

    /// What a loop goes through. A list that has a place is borrowed, for the body wants it too.
    fn by_reference(&self, items: &Expr) -> TokenStream {
        if !is_place(items) {
            return quote!(#items);
        }
        let span = Span::mixed_site().located_at(items.span());
        let p = private(span);
        let place = grouped(Delimiter::Parenthesis, quote_spanned!(span=> &#items), span);
        quote_spanned! {span=> {
            #[allow(unused_imports, reason = "one of them fits")]
            use #p::{ItemsBehind as _, ItemsOf as _, NoItems as _};
            (&#p::Items #place).items()
        }}
    }

    /// A name in a template that is no argument, shown by the compiler inside the literal.
    pub(super) fn hints(&self) -> TokenStream {
        let templates = self.key.form.templates().into_iter();
        templates.filter_map(|template| Some(self.hint(template, template.left_to_rustc.as_ref()?))).collect()
    }

    /// Every argument is hidden by a wrapper that can always be shown, so that nothing else fails here. Should the name
    /// exist after all, as a static or a constant in lower case, the constant is evaluated and says so; where it does not
    /// exist, the compiler evaluates nothing.
    fn hint(&self, template: &Template, name: &str) -> TokenStream {
        let p = &self.private;
        let literal = &template.literal;
        let span = Span::mixed_site().located_at(literal.span());
        let mut items = Vec::new();
        if let Form::ForEach { pattern, .. } = &self.key.form {
            bound_names(pattern, &mut items);
        }
        let arguments = || self.function.bindings.iter().filter(|binding| binding.ident != "self");
        // The build fails here; that an argument looks unused then is no news.
        let used = arguments().map(|binding| {
            let (cfgs, ident) = (&binding.cfgs, &binding.ident);
            quote_spanned!(Span::mixed_site()=> #(#cfgs)* let _ = &#ident;)
        });
        let used: TokenStream = used.collect();
        let shown = arguments()
            .map(|binding| (binding.cfgs.as_slice(), &binding.ident))
            .chain(items.iter().map(|ident| ([].as_slice(), ident)))
            .map(|(cfgs, ident)| quote_spanned!(Span::mixed_site()=> #(#cfgs)* let #ident = #p::Shown;));
        let problem = format!(
            "`{name}` is no argument of this function; pass it as one, or name the constant with its path, as in `{{self::{name}}}`"
        );
        let p = private(span);
        let fault = quote_spanned!(span=> #p::name_is_no_argument(#problem));
        quote_spanned! {span=>
            #used
            const _: () = {
                #[allow(unused_variables, reason = "the template mentions some")]
                let _ = || {
                    #(#shown)*
                    let _ = #p::core::format_args!(#literal);
                };
                #fault
            };
        }
    }

    /// The key of one template. What calls something may make a guard, such as that of a mutex, which in one statement
    /// with the next value would still be there when that one asks for its own: each such value has a statement to itself.
    pub(super) fn made(&self, template: &Template, names: Names) -> TokenStream {
        let p = &self.private;
        let separators = &template.separators;
        let builder = own("__builder");
        let mut statements = TokenStream::new();
        let (first, values) = template.values();
        let mut chain = quote_spanned!(Span::mixed_site()=> #p::KeyBuilder::new(#separators, #first));
        // One without tokens is left to the compiler.
        for (value, behind) in values.into_iter().filter(|(value, _)| !value.tokens.is_empty()) {
            let (source, tokens) = (&value.source, &value.tokens);
            let span = Span::mixed_site().located_at(value.span);
            // Once, for an error names the type.
            let is_borrowed = names == Names::References && self.function.binds(tokens);
            let borrow = if is_borrowed { quote_spanned!(span=> &*) } else { quote_spanned!(span=> &) };
            let method = match value.spec {
                Spec::Plain => quote_spanned!(span=> .value(#source, #borrow #tokens, #behind)),
                Spec::Hash => quote_spanned!(span=> .hash(#source, #borrow #tokens, #behind)),
                Spec::Integer(format) => {
                    let format = self.integer_format(format);
                    quote_spanned!(span=> .integer(#source, #borrow #tokens, #format, #behind))
                }
            };
            if calls(tokens) {
                statements.extend(quote_spanned! {Span::mixed_site()=>
                    let #builder = #chain;
                    let #builder = #builder #method;
                });
                chain = builder.to_token_stream();
            } else {
                chain.extend(method);
            }
        }
        if statements.is_empty() {
            quote_spanned!(Span::mixed_site()=> #chain.finish())
        } else {
            quote_spanned!(Span::mixed_site()=> { #statements #chain.finish() })
        }
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
}

/// Whether something is called in the tokens.
fn calls(tokens: &TokenStream) -> bool {
    tokens.clone().into_iter().any(|token| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Parenthesis || calls(&group.stream()),
        TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => false,
    })
}

/// Whether the expression names a place, which to use by value would be to move out of.
fn is_place(expr: &Expr) -> bool {
    match expr {
        Expr::Path(_) | Expr::Field(_) | Expr::Index(_) => true,
        Expr::Unary(unary) => matches!(unary.op, syn::UnOp::Deref(_)),
        Expr::Paren(inner) => is_place(&inner.expr),
        Expr::Group(inner) => is_place(&inner.expr),
        _ => false,
    }
}

//! What a call locks, in each of the forms that the attribute takes: one template, a list of them, one for each thing in
//! a list, a computed value, or typed declarations. Only their form is judged here; the templates themselves are read
//! by [`key`](crate::key), which knows the function.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Expr, Lit, LitStr, Pat, Path, Token};

use crate::attribute::ungroup;
use crate::diagnostics::Errors;

pub(crate) enum Source {
    /// `key = "T"`.
    Template(LitStr),
    /// `key = EXPR`, taken whole.
    Computed(Expr),
    /// `keys = ["T1", "T2"]`.
    Templates(Vec<LitStr>),
    /// `keys(for PAT in EXPR => "T")`.
    ForEach { pattern: Pat, items: Expr, template: LitStr },
    /// `PATH`, `PATH { FIELDS }` or several of them in brackets.
    Typed(Vec<TypedLock>),
}

/// A value of a type that declares a lock, as it was written.
pub(crate) struct TypedLock {
    pub(crate) path: Path,
    /// With their braces.
    pub(crate) fields: Option<Group>,
}

impl TypedLock {
    /// The name of the type.
    pub(crate) fn name(&self) -> String {
        self.path.segments.last().map(|last| last.ident.unraw().to_string()).unwrap_or_default()
    }
}

impl ToTokens for TypedLock {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        self.path.to_tokens(tokens);
        self.fields.to_tokens(tokens);
    }
}

const A_LOOP: &str = "`keys(for id in &ids => \"order:{id}\")`";
const A_LIST: &str = "`keys = [\"order:{order}\", \"user:{user}\"]`";

/// What stands behind `key =`.
pub(crate) fn one(value: Expr, errors: &mut Errors) -> Option<Source> {
    match value {
        Expr::Lit(literal) => match literal.lit {
            Lit::Str(template) if template.suffix().is_empty() => return Some(Source::Template(template)),
            literal => errors.on(literal, "`key` must be a string literal such as `\"order:{id}\"`"),
        },
        Expr::Array(list) => {
            errors.on(&list, format!("`key` is one key; write `keys = {}` for several", list.to_token_stream()));
        }
        computed => return Some(Source::Computed(computed)),
    }
    None
}

/// The template that says the same as a computed key, if there is one.
pub(crate) fn as_template(computed: &Expr) -> Option<String> {
    match computed {
        Expr::Path(_) | Expr::Field(_) => {
            let source = computed.to_token_stream().to_string().replace(' ', "");
            Some(format!("\"{{{source}}}\""))
        }
        Expr::Reference(reference) => as_template(&reference.expr),
        Expr::MethodCall(call) if call.args.is_empty() && (call.method == "to_string" || call.method == "clone") => {
            as_template(&call.receiver)
        }
        Expr::Macro(call) => {
            call.mac.parse_body::<LitStr>().ok().map(|template| template.to_token_stream().to_string())
        }
        _ => None,
    }
}

/// What stands behind `keys =`.
pub(crate) fn several(value: Expr, errors: &mut Errors) -> Option<Source> {
    let list = match value {
        Expr::Array(list) => list,
        Expr::Lit(literal) if matches!(literal.lit, Lit::Str(_)) => {
            errors.on(
                &literal,
                format!("`keys` takes a list of templates; write `key = {}` for one", literal.to_token_stream()),
            );
            return None;
        }
        other => {
            errors.on(other, format!("`keys` takes a list of templates, as in {A_LIST}, or a loop, as in {A_LOOP}"));
            return None;
        }
    };
    if list.elems.is_empty() {
        errors.on(list, format!("`keys` is empty; write what the lock is on, as in {A_LIST}"));
        return None;
    }
    let before = errors.len();
    let mut templates: Vec<LitStr> = Vec::new();
    for element in list.elems {
        match ungroup(element) {
            Expr::Lit(literal) => match literal.lit {
                Lit::Str(template) if template.suffix().is_empty() => {
                    if templates.iter().any(|other| other.value() == template.value()) {
                        let text = template.to_token_stream();
                        errors.on(template, format!("the template `{text}` stands twice in `keys`; write it once"));
                    } else {
                        templates.push(template);
                    }
                }
                literal => errors.on(literal, "each of `keys` is a string literal such as `\"order:{id}\"`"),
            },
            other => {
                let instead = as_template(&other).map_or_else(
                    || format!("for a list of things write {A_LOOP}"),
                    |template| format!("write `{template}`"),
                );
                errors.on(other, format!("each of `keys` is a template; {instead}"));
            }
        }
    }
    (errors.len() == before).then_some(Source::Templates(templates))
}

/// What stands in the brackets of `keys(…)`.
pub(crate) fn for_each(input: ParseStream<'_>, errors: &mut Errors) -> syn::Result<Option<Source>> {
    let content;
    let brackets = syn::parenthesized!(content in input);
    let read = if content.peek(Token![for]) {
        for_loop(&content)
            .map_err(|error| syn::Error::new(error.span(), format!("{error}; write a loop such as {A_LOOP}")))
    } else {
        let text =
            format!("`keys(..)` takes a loop, as in {A_LOOP}; a list of templates stands behind `=`, as in {A_LIST}");
        Err(syn::Error::new(brackets.span.join(), text))
    };
    match read {
        Ok(source) => Ok(Some(source)),
        Err(error) => {
            // What is left must be taken, or it is an error of its own.
            content.parse::<TokenStream>()?;
            errors.at(error.span(), error);
            Ok(None)
        }
    }
}

fn for_loop(input: ParseStream<'_>) -> syn::Result<Source> {
    input.parse::<Token![for]>()?;
    let pattern = Pat::parse_multi_with_leading_vert(input)?;
    input.parse::<Token![in]>()?;
    let items = ungroup(input.parse()?);
    input.parse::<Token![=>]>()?;
    let template = match ungroup(input.parse()?) {
        Expr::Lit(literal) => match literal.lit {
            Lit::Str(template) if template.suffix().is_empty() => template,
            other => return Err(syn::Error::new_spanned(other, "expected a template in quotes")),
        },
        other => return Err(syn::Error::new_spanned(other, "expected a template in quotes")),
    };
    input.parse::<Option<Token![,]>>()?;
    if input.is_empty() {
        Ok(Source::ForEach { pattern, items, template })
    } else {
        Err(input.error("unexpected token"))
    }
}

/// Whether the next item has the form of a typed lock: a path that is followed by no `=`, or a list.
pub(crate) fn is_typed(input: ParseStream<'_>) -> bool {
    if input.peek(syn::token::Bracket) || input.peek(Token![::]) {
        return true;
    }
    let fork = input.fork();
    let Ok(name) = fork.call(Ident::parse_any) else { return false };
    let starts_upper = name.to_string().starts_with(char::is_uppercase);
    fork.peek(Token![::]) || fork.peek(syn::token::Brace) || (starts_upper && !fork.peek(Token![=]))
}

/// Typed locks, with the place of the first one's name. What stands behind them is left.
pub(crate) fn typed(input: ParseStream<'_>) -> syn::Result<(Span, Source)> {
    let list: Vec<TypedLock> = if input.peek(syn::token::Bracket) {
        let TokenTree::Group(list) = input.parse()? else { return Err(input.error("expected typed locks")) };
        let locks = Punctuated::<TypedLock, Token![,]>::parse_terminated.parse2(list.stream())?;
        if locks.is_empty() {
            return Err(syn::Error::new_spanned(list, "the list of locks is empty; name at least one"));
        }
        locks.into_iter().collect()
    } else {
        vec![input.parse::<TypedLock>()?]
    };
    let place =
        list.first().and_then(|lock| lock.path.segments.last()).map_or_else(Span::call_site, |last| last.ident.span());
    Ok((place, Source::Typed(list)))
}

/// A lock that is made by a call, which could be anything.
fn called(path: &Path, arguments: &Group) -> syn::Error {
    let is_type = |name: &Ident| name.to_string().starts_with(char::is_uppercase);
    let name = path.segments.iter().rev().map(|segment| &segment.ident).find(|name| is_type(name));
    let name = name.map_or_else(|| "OrderLock".to_owned(), Ident::to_string);
    let call = format!("{}{}", path.to_token_stream().to_string().replace(' ', ""), arguments.to_token_stream());
    let problem = format!(
        "a typed lock is written with its fields, as in `{name} {{ id }}`; what a call makes is a computed key, `key = {call}, label = \"order\"`"
    );
    syn::Error::new_spanned(path, problem)
}

impl Parse for TypedLock {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let path = input.parse::<Path>()?;
        if let Ok(TokenTree::Group(arguments)) = input.fork().parse::<TokenTree>()
            && arguments.delimiter() == Delimiter::Parenthesis
        {
            return Err(called(&path, &arguments));
        }
        let fields = match input.fork().parse::<TokenTree>() {
            Ok(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                input.parse::<TokenTree>()?;
                Some(group)
            }
            _ => None,
        };
        Ok(Self { path, fields })
    }
}

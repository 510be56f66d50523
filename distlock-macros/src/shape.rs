//! The item under the attribute: an `async fn`, or what `#[async_trait]` has made of one. The signature is kept as the
//! user wrote it and the body as opaque tokens, so that nothing in them can be misread. Everything else is refused here.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream, Parser};
use syn::{
    Attribute, FnArg, GenericArgument, Pat, PathArguments, ReturnType, Signature, Token, Type, TypeParamBound,
    Visibility, token,
};

use crate::deferred::deferred;
use crate::diagnostics::Errors;

pub(crate) struct Function {
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) default: Option<Ident>,
    pub(crate) sig: Signature,
    /// The body with its braces.
    pub(crate) block: Group,
    pub(crate) body: Body,
    /// Every name that the arguments bind, in their order.
    pub(crate) bindings: Vec<Binding>,
    /// What the function gives once it is awaited; `None` is `()`.
    pub(crate) output: Option<Type>,
    /// Whether `#[async_trait]` has taken patterns out of the signature.
    pub(crate) destructured_away: bool,
    /// Whether it is no function but a declaration, whose arguments are its fields.
    pub(crate) is_declaration: bool,
}

pub(crate) enum Body {
    /// That of an `async fn`.
    Async,
    /// `PREFIX Box::pin(async move { STATEMENTS })`.
    Boxed(Boxed),
}

pub(crate) struct Boxed {
    pub(crate) prefix: TokenStream,
    /// Of the round brackets.
    pub(crate) span: Span,
    /// `async move`.
    pub(crate) head: TokenStream,
    /// The statements with their braces.
    pub(crate) block: Group,
}

pub(crate) struct Binding {
    pub(crate) ident: Ident,
    /// The `cfg`s of its argument.
    pub(crate) cfgs: Vec<Attribute>,
    /// Of an argument that is bound as a whole.
    pub(crate) ty: Option<Type>,
}

impl Function {
    /// Whether this is the name of an argument, and nothing more.
    pub(crate) fn binds(&self, tokens: &TokenStream) -> bool {
        let text = tokens.to_string();
        self.bindings.iter().any(|binding| binding.ident == text)
    }

    /// A typed declaration as the templates and the expansion see it: a function of its name whose arguments are its
    /// fields.
    pub(crate) fn of_declaration(name: &Ident, fields: Vec<Binding>) -> Self {
        let span = name.span();
        Self {
            attrs: Vec::new(),
            vis: Visibility::Inherited,
            default: None,
            sig: Signature {
                constness: None,
                asyncness: None,
                safety: syn::Safety::Default,
                abi: None,
                fn_token: Token![fn](span),
                ident: name.clone(),
                generics: syn::Generics::default(),
                paren_token: token::Paren(span),
                inputs: syn::punctuated::Punctuated::new(),
                variadic: None,
                output: ReturnType::Default,
            },
            block: Group::new(Delimiter::Brace, TokenStream::new()),
            body: Body::Async,
            bindings: fields,
            output: None,
            destructured_away: false,
            is_declaration: true,
        }
    }

    pub(crate) fn binding(&self, name: &str) -> Option<&Binding> {
        self.bindings.iter().find(|binding| binding.ident.unraw() == name)
    }

    /// The names that a key can use.
    pub(crate) fn names(&self) -> Vec<String> {
        self.bindings
            .iter()
            .map(|binding| binding.ident.unraw().to_string())
            .filter(|name| !name.starts_with("__arg"))
            .collect()
    }
}

/// The function, unless the item is none that can be locked.
pub(crate) fn parse(item: TokenStream, errors: &mut Errors) -> Option<Function> {
    let raw = match raw(item) {
        Ok(raw) => raw,
        Err(error) => {
            errors.at(error.span(), error);
            return None;
        }
    };
    let before = errors.len();
    raw.refuse_place(errors);
    if errors.len() > before {
        return None;
    }
    let block = raw.block?;
    let (body, output) = match raw.sig.asyncness {
        Some(_) => (Body::Async, return_type(&raw.sig)),
        None => match (boxed_body(block.stream()), boxed_output(&raw.sig)) {
            (Some(boxed), Some(output)) => (Body::Boxed(boxed), Some(output)),
            _ => {
                errors.on(raw.sig.fn_token, not_async(&raw.sig));
                return None;
            }
        },
    };
    let mut bindings = Vec::new();
    let mut destructured_away = false;
    for argument in &raw.sig.inputs {
        match argument {
            FnArg::Receiver(receiver) => bindings.push(Binding {
                ident: Ident::new("self", receiver.self_token.span),
                cfgs: cfgs(&receiver.attrs),
                ty: None,
            }),
            FnArg::Typed(argument) => {
                let mut names = Vec::new();
                bound_names(&argument.pat, &mut names);
                destructured_away |=
                    matches!(body, Body::Boxed(_)) && names.iter().any(|name| name.to_string().starts_with("__arg"));
                let whole = matches!(*argument.pat, Pat::Ident(_));
                bindings.extend(names.into_iter().map(|ident| Binding {
                    ident,
                    cfgs: cfgs(&argument.attrs),
                    ty: whole.then(|| Type::clone(&argument.ty)),
                }));
            }
        }
    }
    Some(Function {
        attrs: raw.attrs,
        vis: raw.vis,
        default: raw.default,
        sig: raw.sig,
        block,
        body,
        bindings,
        output,
        destructured_away,
        is_declaration: false,
    })
}

/// The function with its body as one token: the parser, which copies all that it is given, sees an empty one.
fn raw(item: TokenStream) -> syn::Result<Raw> {
    let mut tokens: Vec<TokenTree> = item.into_iter().collect();
    let block = match tokens.pop() {
        Some(TokenTree::Group(block)) if block.delimiter() == Delimiter::Brace && !has_inner_attributes(&block) => {
            let mut empty = Group::new(Delimiter::Brace, TokenStream::new());
            empty.set_span(block.span());
            tokens.push(TokenTree::Group(empty));
            Some(block)
        }
        last => {
            tokens.extend(last);
            None
        }
    };
    let raw = Raw::parse.parse2(tokens.into_iter().collect())?;
    // The very brackets of the user, so that a fault inside them is reported once.
    Ok(Raw { block: block.or(raw.block), ..raw })
}

fn has_inner_attributes(block: &Group) -> bool {
    matches!(block.stream().into_iter().next(), Some(TokenTree::Punct(pound)) if pound.as_char() == '#')
}

/// A function as it stands in the source, with or without a body.
struct Raw {
    attrs: Vec<Attribute>,
    vis: Visibility,
    default: Option<Ident>,
    sig: Signature,
    block: Option<Group>,
}

const PLACE: &str = "`#[distributed_lock]` goes on an `async fn`";

impl Parse for Raw {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let mut attrs = input.call(Attribute::parse_outer)?;
        let start = input.span();
        let vis = input.parse::<Visibility>().map_err(|_| syn::Error::new(start, PLACE))?;
        let keyword = input.span();
        let default = match input.fork().call(Ident::parse_any) {
            Ok(ident) if ident == "default" => Some(input.call(Ident::parse_any)?),
            _ => None,
        };
        if !begins_function(input) {
            return Err(syn::Error::new(keyword, PLACE));
        }
        let sig: Signature = input.parse()?;
        if input.peek(Token![;]) {
            input.parse::<Token![;]>()?;
            return Ok(Self { attrs, vis, default, sig, block: None });
        }
        if !input.peek(token::Brace) {
            return Err(input.error("expected the body of the function"));
        }
        let TokenTree::Group(block) = input.parse()? else {
            return Err(input.error("expected the body of the function"));
        };
        let (inner, statements) =
            (|body: ParseStream<'_>| Ok((Attribute::parse_inner(body)?, body.parse::<TokenStream>()?)))
                .parse2(block.stream())?;
        if inner.is_empty() {
            // The very brackets of the user, so that a fault inside them is reported once.
            return Ok(Self { attrs, vis, default, sig, block: Some(block) });
        }
        // Statements will stand in front of the body, where inner attributes are not allowed.
        attrs.extend(inner.into_iter().map(|attribute| Attribute { style: syn::AttrStyle::Outer, ..attribute }));
        let mut block_without = Group::new(Delimiter::Brace, statements);
        block_without.set_span(block.span());
        Ok(Self { attrs, vis, default, sig, block: Some(block_without) })
    }
}

/// Whether only qualifiers of a function stand before `fn`.
fn begins_function(input: ParseStream<'_>) -> bool {
    let fork = input.fork();
    loop {
        if fork.peek(Token![fn]) {
            return true;
        }
        let qualifier = fork.peek(Token![const])
            || fork.peek(Token![async])
            || fork.peek(Token![unsafe])
            || fork.peek(Token![extern])
            || fork.peek(syn::LitStr);
        let safe = fork.fork().call(Ident::parse_any).is_ok_and(|ident| ident == "safe");
        if !(qualifier || safe) || fork.parse::<TokenTree>().is_err() {
            return false;
        }
    }
}

impl Raw {
    fn refuse_place(&self, errors: &mut Errors) {
        if let Some(constness) = &self.sig.constness {
            errors.on(constness, "`#[distributed_lock]` cannot be used on a `const fn`; a lock needs an `async fn`");
        }
        if self.block.is_none() {
            errors.on(&self.sig, "`#[distributed_lock]` needs a body to protect; put it on the implementation, not on the trait's declaration");
        }
        for second in self.attrs.iter().filter(|attribute| is_ours(attribute)) {
            errors.on(second, "a second `#[distributed_lock]` on one function; two locks taken one after the other can block each other for ever, put both into one key or move one to the caller");
        }
    }
}

pub(crate) fn is_ours(attribute: &Attribute) -> bool {
    attribute.path().segments.last().is_some_and(|last| last.ident == "distributed_lock")
}

fn not_async(sig: &Signature) -> String {
    let gives_future = match &sig.output {
        ReturnType::Type(_, ty) => deferred(ty).is_some(),
        ReturnType::Default => false,
    };
    if gives_future {
        return "`#[distributed_lock]` needs an `async fn`; write `async fn` here and return what the future gives"
            .to_owned();
    }
    "`#[distributed_lock]` needs an `async fn`; write `async fn`, or, where an attribute such as `#[tokio::test]` has already removed `async`, move `#[distributed_lock]` above it".to_owned()
}

fn cfgs(attrs: &[Attribute]) -> Vec<Attribute> {
    attrs.iter().filter(|attribute| attribute.path().is_ident("cfg")).cloned().collect()
}

pub(crate) fn bound_names(pattern: &Pat, names: &mut Vec<Ident>) {
    match pattern {
        Pat::Ident(pattern) => {
            names.push(pattern.ident.clone());
            if let Some((_, inner)) = &pattern.subpat {
                bound_names(inner, names);
            }
        }
        Pat::Tuple(pattern) => pattern.elems.iter().for_each(|inner| bound_names(inner, names)),
        Pat::TupleStruct(pattern) => pattern.elems.iter().for_each(|inner| bound_names(inner, names)),
        Pat::Slice(pattern) => pattern.elems.iter().for_each(|inner| bound_names(inner, names)),
        Pat::Struct(pattern) => pattern.fields.iter().for_each(|field| bound_names(&field.pat, names)),
        Pat::Reference(pattern) => bound_names(&pattern.pat, names),
        Pat::Paren(pattern) => bound_names(&pattern.pat, names),
        Pat::Type(pattern) => bound_names(&pattern.pat, names),
        // Every alternative binds the same names.
        Pat::Or(pattern) => pattern.cases.first().into_iter().for_each(|inner| bound_names(inner, names)),
        _ => {}
    }
}

fn return_type(sig: &Signature) -> Option<Type> {
    match &sig.output {
        ReturnType::Default => None,
        ReturnType::Type(_, ty) => Some(Type::clone(ty)),
    }
}

/// `T` of `Pin<Box<dyn Future<Output = T> + …>>`.
fn boxed_output(sig: &Signature) -> Option<Type> {
    let ReturnType::Type(_, ty) = &sig.output else { return None };
    let Type::TraitObject(object) = ungroup(argument_of(argument_of(ungroup(ty), "Pin")?, "Box")?) else { return None };
    object.bounds.iter().find_map(|bound| {
        let TypeParamBound::Trait(bound) = bound else { return None };
        let last = bound.path.segments.last().filter(|last| last.ident == "Future")?;
        let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
        arguments.args.iter().find_map(|argument| match argument {
            GenericArgument::AssocType(assoc) if assoc.ident == "Output" => Some(assoc.ty.clone()),
            _ => None,
        })
    })
}

/// The first type argument of `…::NAME<T>`.
pub(crate) fn argument_of<'a>(ty: &'a Type, name: &str) -> Option<&'a Type> {
    let Type::Path(path) = ungroup(ty) else { return None };
    let last = path.path.segments.last().filter(|last| last.ident == name)?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    arguments.args.iter().find_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    })
}

pub(crate) fn ungroup(mut ty: &Type) -> &Type {
    loop {
        match ty {
            Type::Group(group) => ty = &group.elem,
            Type::Paren(paren) => ty = &paren.elem,
            _ => return ty,
        }
    }
}

/// Takes `PREFIX Box::pin(async move { … })` apart; `None` for any other body.
fn boxed_body(body: TokenStream) -> Option<Boxed> {
    let mut tokens: Vec<TokenTree> = body.into_iter().collect();
    let TokenTree::Group(arguments) = tokens.pop()? else { return None };
    let called_pin = matches!(tokens.last(), Some(TokenTree::Ident(name)) if name == "pin");
    if arguments.delimiter() != Delimiter::Parenthesis || !called_pin {
        return None;
    }
    let (head, block) = async_move(arguments.stream())?;
    Some(Boxed { prefix: tokens.into_iter().collect(), span: arguments.span(), head, block })
}

fn async_move(tokens: TokenStream) -> Option<(TokenStream, Group)> {
    let mut tokens = tokens.into_iter();
    let (Some(TokenTree::Ident(first)), Some(TokenTree::Ident(second)), Some(TokenTree::Group(block)), None) =
        (tokens.next(), tokens.next(), tokens.next(), tokens.next())
    else {
        return None;
    };
    let fits = first == "async" && second == "move" && block.delimiter() == Delimiter::Brace;
    fits.then(|| ([TokenTree::Ident(first), TokenTree::Ident(second)].into_iter().collect(), block))
}

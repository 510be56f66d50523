//! What stands in front of a typed declaration and in a lock set, as models: `#[lock(key = "order:{id}", ttl = "5s")]` and
//! `pub Locks { namespace = "billing", ttl = "15s" }`. The options that they share with functions are read by
//! [`attribute`](crate::attribute), the template by [`template`](crate::template).

use proc_macro2::{Ident, TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream, Parser};
use syn::{Attribute, Data, DeriveInput, Expr, Fields, LitStr, Path, Token, Visibility};

use crate::attribute::{self, Options, Renew, Time, Wait};
use crate::diagnostics::{Errors, list, nearest};
use crate::key::Scope;
use crate::shape::{Binding, Function};
use crate::source::Source;
use crate::template::{self, Template};
use crate::{options, valid};

/// The options of `#[lock]`.
const OF_A_LOCK: [&str; 9] = ["key", "ttl", "wait", "renew", "max_hold", "min_hold", "set", "witness", "crate"];

/// The options of a lock set.
const OF_A_SET: [&str; 7] = ["namespace", "ttl", "wait", "renew", "max_hold", "min_hold", "crate"];

/// The longest namespace, as the manager has it.
const LONGEST_NAMESPACE: usize = 128;

/// A type with `#[derive(LockKey)]`.
pub(crate) struct Declaration {
    pub(crate) input: DeriveInput,
    pub(crate) options: Options,
    /// The type as a function whose arguments are its fields.
    pub(crate) function: Function,
    pub(crate) template: Template,
    pub(crate) set: Option<Path>,
    pub(crate) witness: Option<Ident>,
}

/// What `lock_set!` makes.
pub(crate) struct LockSet {
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) name: Ident,
    pub(crate) options: Options,
    pub(crate) namespace: Option<LitStr>,
}

/// The declaration, unless something is wrong with it.
pub(crate) fn parse(input: DeriveInput, errors: &mut Errors) -> Option<Declaration> {
    let before = errors.len();
    let fields = fields(&input, errors);
    let is_readable = errors.len() == before;
    let Divided { own, shared } = divide(lock_attributes(&input, errors), &OF_A_LOCK, "#[lock]", errors);
    let options = attribute::parse_some(shared, errors);
    if !options.was_written("key") {
        errors.at(
            input.ident.span(),
            "`#[derive(LockKey)]` needs the key of the lock; write `#[lock(key = \"order:{id}\", ttl = \"5s\")]` above the type",
        );
    }
    settings(&options, own.iter().any(|(name, _)| name == "set"), errors);
    let (mut set, mut witness) = (None, None);
    for (name, value) in own {
        match (name.to_string().as_str(), value) {
            ("set", Expr::Path(path)) if path.qself.is_none() => set = Some(path.path),
            ("set", other) => errors.on(other, "`set` takes the path of a lock set, as in `set = crate::Locks`"),
            (_, Expr::Path(path)) if path.path.get_ident().is_some() => witness = path.path.get_ident().cloned(),
            (_, other) => errors.on(other, "`witness` takes the name of a unit struct, as in `witness = OrderHeld`"),
        }
    }
    if let Some(witness) = &witness
        && input.generics.lifetimes().next().is_none()
    {
        errors.on(
            witness,
            "a declaration without a lifetime is its own witness, as in `&Lease<OrderLock>`; leave `witness` out",
        );
    }
    let function = Function::of_declaration(&input.ident, fields);
    // Without its fields every placeholder would be a second fault.
    let template = if is_readable { template_of(&options, &function, errors) } else { None };
    if let Some(template) = &template {
        all_are_used(&function, template, errors);
    }
    let template = template.filter(|_| errors.len() == before)?;
    Some(Declaration { input, options, function, template, set, witness })
}

fn template_of(options: &Options, function: &Function, errors: &mut Errors) -> Option<Template> {
    match &options.source.as_ref()?.value {
        Source::Template(literal) => template::parse(literal, &Scope { function, items: Vec::new() }, errors),
        Source::Computed(value) => {
            errors.on(value, "the `key` of a declaration is a template such as `\"order:{id}\"`");
            None
        }
        _ => None,
    }
}

/// The fields as what a template can name; a marker has no value that could stand in a key.
fn fields(input: &DeriveInput, errors: &mut Errors) -> Vec<Binding> {
    let fields = match &input.data {
        Data::Struct(data) => &data.fields,
        Data::Enum(data) => {
            errors.on(data.enum_token, "`#[derive(LockKey)]` goes on a struct; declare each lock as a struct of its own, and derive `KeySegment` for an enum that stands in a key");
            return Vec::new();
        }
        Data::Union(data) => {
            errors.on(data.union_token, "`#[derive(LockKey)]` goes on a struct with named fields");
            return Vec::new();
        }
    };
    match fields {
        Fields::Unit => Vec::new(),
        Fields::Unnamed(fields) => {
            errors.on(
                fields,
                "`#[derive(LockKey)]` needs names for its fields, which the key template uses; write `{ id: u64 }`",
            );
            Vec::new()
        }
        Fields::Named(fields) => {
            let values = fields.named.iter().filter(|field| !is_marker(&field.ty));
            let named = values.filter_map(|field| Some((field.ident.clone()?, field.ty.clone())));
            named.map(|(ident, ty)| Binding { ident, cfgs: Vec::new(), ty: Some(ty) }).collect()
        }
    }
}

fn lock_attributes(input: &DeriveInput, errors: &mut Errors) -> TokenStream {
    let is_mistaken = |attribute: &&Attribute| attribute.path().is_ident("distributed_lock");
    for attribute in input.attrs.iter().filter(is_mistaken) {
        errors.on(attribute, "a declaration has its options in `#[lock(..)]`");
    }
    options_of("lock", "key = \"order:{id}\", ttl = \"5s\"", input, errors)
}

/// The options of `#[segment(…)]`: where the library is.
pub(crate) fn segment_options(input: &DeriveInput, errors: &mut Errors) -> Options {
    let tokens = options_of("segment", "crate = my_lib::distlock", input, errors);
    let Divided { shared, .. } = divide(tokens, &["crate"], "#[segment]", errors);
    attribute::parse_some(shared, errors)
}

/// What all `#[NAME(…)]` say, one after the other.
fn options_of(name: &str, example: &str, input: &DeriveInput, errors: &mut Errors) -> TokenStream {
    let mut tokens = TokenStream::new();
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident(name)) {
        match attribute.meta.require_list() {
            Ok(list) => {
                if !tokens.is_empty() {
                    tokens.extend(quote::quote!(,));
                }
                tokens.extend(list.tokens.clone());
            }
            Err(_) => errors.on(attribute, format!("write the options in brackets, as in `#[{name}({example})]`")),
        }
    }
    tokens
}

/// The options, those that only declarations have apart from the others.
struct Divided {
    own: Vec<(Ident, Expr)>,
    shared: TokenStream,
}

fn divide(tokens: TokenStream, allowed: &[&str], place: &str, errors: &mut Errors) -> Divided {
    let mut divided = Divided { own: Vec::new(), shared: TokenStream::new() };
    for item in items(tokens) {
        let name = match item.first() {
            Some(TokenTree::Ident(name)) => name.clone(),
            _ => {
                push(&mut divided.shared, item);
                continue;
            }
        };
        let text = name.to_string();
        if text == "permits" || text == "mode" {
            options::not_yet(name, &format!("option `{text}`"), "leave it out in this version", errors);
        } else if options::is_of_functions(&text) && !allowed.contains(&text.as_str()) {
            errors.at(
                name.span(),
                format!("`{text}` is an option of `#[distributed_lock]`; {place} takes {}", list(allowed, "and")),
            );
        } else if !allowed.contains(&text.as_str()) {
            match nearest(&text, allowed.iter().copied()) {
                Some(near) => errors.at(name.span(), format!("unknown option `{text}`; did you mean `{near}`?")),
                None => {
                    errors.at(name.span(), format!("unknown option `{text}`; expected one of {}", list(allowed, "or")))
                }
            }
        } else if matches!(text.as_str(), "set" | "witness" | "namespace") {
            if divided.own.iter().any(|(other, _)| *other == text) {
                errors.at(name.span(), format!("option `{text}` is given twice"));
                continue;
            }
            match value(item) {
                Some(value) => divided.own.push((name, value)),
                None => errors
                    .at(name.span(), format!("option `{text}` needs a value, as in `{text} = {}`", example(&text))),
            }
        } else {
            push(&mut divided.shared, item);
        }
    }
    divided
}

/// The tokens between the commas.
fn items(tokens: TokenStream) -> Vec<Vec<TokenTree>> {
    let mut items = vec![Vec::new()];
    for token in tokens {
        match &token {
            TokenTree::Punct(comma) if comma.as_char() == ',' => items.push(Vec::new()),
            _ => items.last_mut().map_or((), |item| item.push(token)),
        }
    }
    items.retain(|item| !item.is_empty());
    items
}

fn push(shared: &mut TokenStream, item: Vec<TokenTree>) {
    shared.extend(item);
    shared.extend(quote::quote!(,));
}

/// `VALUE` of `NAME = VALUE`.
fn value(item: Vec<TokenTree>) -> Option<Expr> {
    let mut tokens = item.into_iter().skip(1);
    match tokens.next() {
        Some(TokenTree::Punct(equals)) if equals.as_char() == '=' => {}
        _ => return None,
    }
    syn::parse2(tokens.collect()).ok().map(attribute::ungroup)
}

fn example(option: &str) -> &'static str {
    match option {
        "set" => "crate::Locks",
        "witness" => "OrderHeld",
        _ => "\"billing\"",
    }
}

/// The cross-checks of settings, which here are known at build.
fn settings(options: &Options, inherits: bool, errors: &mut Errors) {
    valid::settings(options, inherits, errors);
    let Options { ttl, wait, renew, max_hold, min_hold, .. } = options;
    let mut times: Vec<&Time> = [ttl, max_hold, min_hold].into_iter().flatten().map(|given| &given.value).collect();
    if let Some(Wait::For(time)) = wait.as_ref().map(|given| &given.value) {
        times.push(time);
    }
    if let Some(Renew::Every(time)) = renew.as_ref().map(|given| &given.value) {
        times.push(time);
    }
    for time in times {
        match time {
            Time::Computed(value) => errors.on(value, "a declaration is known at build; write a duration such as `\"5s\"`, or the path of a constant in upper case"),
            Time::Constant(Expr::Path(path)) if path.path.segments.first().is_some_and(|first| first.ident == "Self") => {
                errors.on(path, "name the constant by a path that does not go through `Self`");
            }
            Time::Constant(_) | Time::Literal(..) => {}
        }
    }
}

/// A field that is not in the key would tell apart what is one lock.
fn all_are_used(function: &Function, template: &Template, errors: &mut Errors) {
    for field in &function.bindings {
        let name = field.ident.unraw().to_string();
        if !template.mentions.contains(&name) {
            errors.on(
                &field.ident,
                format!("field `{name}` is not in the key; add `{{{name}}}` to the template, or leave the field out"),
            );
        }
    }
}

/// The lock set, unless something is wrong with it; its name in any case, so that it can be declared beside an error.
pub(crate) fn parse_set(tokens: TokenStream, errors: &mut Errors) -> Option<LockSet> {
    let Written { attrs, vis, name, options } = match syn::parse2(tokens) {
        Ok(written) => written,
        Err(error) => {
            errors.at(
                error.span(),
                format!("{error}; write `lock_set! {{ pub Locks {{ namespace = \"billing\", ttl = \"15s\" }} }}`"),
            );
            return None;
        }
    };
    let Divided { own, shared } = divide(options, &OF_A_SET, "a lock set", errors);
    let options = attribute::parse_some(shared, errors);
    settings(&options, true, errors);
    let mut namespace = None;
    for (_, value) in own {
        match value {
            Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => {
                check_namespace(&text, errors);
                namespace = Some(text);
            }
            other => errors.on(other, "`namespace` takes a string literal such as `\"billing\"`"),
        }
    }
    Some(LockSet { attrs, vis, name, options, namespace })
}

/// As the manager checks its own.
fn check_namespace(text: &LitStr, errors: &mut Errors) {
    let namespace = text.value();
    if namespace.is_empty() || namespace.len() > LONGEST_NAMESPACE {
        errors.on(text, format!("a namespace has 1 to {LONGEST_NAMESPACE} bytes"));
    } else if namespace.chars().any(|c| "{}".contains(c) || c.is_whitespace() || c.is_control()) {
        errors.on(text, "a namespace has no braces, white space or control characters");
    }
}

/// `ATTRS VIS NAME { OPTIONS }`.
struct Written {
    attrs: Vec<Attribute>,
    vis: Visibility,
    name: Ident,
    options: TokenStream,
}

impl Parse for Written {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let attrs = input.call(Attribute::parse_outer)?;
        let vis = input.parse()?;
        if input.peek(Token![struct]) {
            return Err(input.error("the name of a lock set stands without `struct`"));
        }
        let name = input.parse()?;
        let options;
        syn::braced!(options in input);
        let options = options.parse()?;
        if input.is_empty() {
            Ok(Self { attrs, vis, name, options })
        } else {
            Err(input.error("one lock set for each `lock_set!`"))
        }
    }
}

/// The one value of a type with `#[derive(KeySegment)]`.
pub(crate) enum Segment<'a> {
    /// A newtype: the member and its type.
    Transparent(syn::Member, &'a syn::Type),
    /// An enum: its variants.
    Variants(Vec<&'a Ident>),
}

pub(crate) fn parse_segment<'a>(input: &'a DeriveInput, errors: &mut Errors) -> Option<Segment<'a>> {
    match &input.data {
        Data::Struct(data) => {
            let members = data.fields.members();
            // A marker says what a number is the number of, and prints nothing.
            let values: Vec<_> = members.zip(&data.fields).filter(|(_, field)| !is_marker(&field.ty)).collect();
            match values.as_slice() {
                [(member, field)] => return Some(Segment::Transparent(member.clone(), &field.ty)),
                [] => errors.on(&input.ident, "`#[derive(KeySegment)]` needs a field that holds the value; what has none says nothing in a key"),
                [..] => errors.on(&data.fields, format!("`#[derive(KeySegment)]` is for a type of one value, for two printed in a row could be taken for others; put each field into the template, as in {}", several(&values))),
            }
        }
        Data::Enum(data) => {
            let mut variants = Vec::new();
            for variant in &data.variants {
                if matches!(variant.fields, Fields::Unit) {
                    variants.push(&variant.ident);
                } else {
                    errors.on(variant, format!("`#[derive(KeySegment)]` is for enums without fields; `{}` has some, so pass what the lock is on as a value of its own", variant.ident));
                }
            }
            if variants.len() == data.variants.len() {
                return Some(Segment::Variants(variants));
            }
        }
        Data::Union(data) => {
            errors.on(data.union_token, "`#[derive(KeySegment)]` goes on a newtype or an enum without fields")
        }
    }
    None
}

fn several(values: &[(syn::Member, &syn::Field)]) -> String {
    let parts: Vec<String> = values
        .iter()
        .map(|(member, _)| match member {
            syn::Member::Named(name) => format!("{{value.{name}}}"),
            syn::Member::Unnamed(index) => format!("{{value.{}}}", index.index),
        })
        .collect();
    format!("`{}`", parts.join(":"))
}

fn is_marker(ty: &syn::Type) -> bool {
    matches!(crate::shape::ungroup(ty), syn::Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == "PhantomData"))
}

/// The input of a derive, or the compiler's word on what it is not.
pub(crate) fn input(tokens: TokenStream, errors: &mut Errors) -> Option<DeriveInput> {
    DeriveInput::parse.parse2(tokens).map_err(|error| errors.at(error.span(), error)).ok()
}

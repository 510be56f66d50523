//! The key template: `"coupon:{campaign_id}:{user.email:hash}"` becomes literal text and placeholders. The grammar is
//!
//! ```text
//! template = (literal | "{{" | "}}" | "{" EXPR [":" SPEC] "}")*
//! EXPR     = argument | self | constant, then any of .field  .0  .method(args)  [index]
//! SPEC     = hash, or for integers [#][0N][x|X|o|b]
//! ```
//!
//! It also sees to it that two different sets of values cannot print alike: between two placeholders there must stand a
//! character that no value can contain. Which ones those are is [`Template::separators`]; the runtime escapes them.

use std::collections::BTreeSet;
use std::ops::Range;

use proc_macro2::{Group, Ident, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::{Expr, LitStr};

use crate::attribute::ungroup;
use crate::diagnostics::{Errors, drawn, list, nearest};
use crate::key::Scope;

pub(crate) struct Template {
    pub(crate) literal: LitStr,
    pub(crate) parts: Vec<Part>,
    /// Every character of the literal text that is neither a letter, a digit nor `%`.
    pub(crate) separators: String,
    /// The template with its placeholders blanked.
    pub(crate) label: String,
    /// The arguments that the key mentions.
    pub(crate) mentions: BTreeSet<String>,
    /// Where its placeholders stand, with their braces.
    pub(crate) holes: Vec<Range<usize>>,
    /// A plain name that is no argument, in a template that `format_args!` can read as well: the compiler's own error
    /// points into the string and offers the name that was meant.
    pub(crate) left_to_rustc: Option<String>,
}

pub(crate) enum Part {
    Literal(String),
    Value(Placeholder),
}

pub(crate) struct Placeholder {
    /// As the user wrote it, without the spec.
    pub(crate) source: String,
    pub(crate) tokens: TokenStream,
    pub(crate) spec: Spec,
    pub(crate) span: Span,
    /// Whether the value begins with a constant and not with an argument. The same path may lead to another constant in
    /// another module or impl block.
    pub(crate) is_constant: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Spec {
    Plain,
    Hash,
    Integer(Integer),
}

/// `[#][0N][x|X|o|b]`.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(crate) struct Integer {
    pub(crate) prefix: bool,
    pub(crate) width: usize,
    pub(crate) radix: Option<char>,
}

/// The widest zero-filled number: as many digits as the widest integer has in binary.
const MAX_WIDTH: usize = 128;

const ALLOWED: &str = "use arguments, fields, indexing and method calls";

/// The template, if it can be read.
pub(crate) fn parse(literal: &LitStr, scope: &Scope<'_>, errors: &mut Errors) -> Option<Template> {
    let mut parser = Parser {
        text: literal.value(),
        template: Template {
            literal: literal.clone(),
            parts: Vec::new(),
            separators: String::new(),
            label: String::new(),
            mentions: BTreeSet::new(),
            holes: Vec::new(),
            left_to_rustc: None,
        },
        unknown: Vec::new(),
        scope,
        errors,
    };
    let before = parser.errors.len();
    parser.scan();
    parser.name_unknown();
    (parser.errors.len() == before).then_some(parser.template)
}

struct Parser<'a> {
    text: String,
    template: Template,
    /// Plain names that are neither an argument nor look like a constant.
    unknown: Vec<(String, Range<usize>)>,
    scope: &'a Scope<'a>,
    errors: &'a mut Errors,
}

impl Template {
    /// The text in front of the first value, and every value with the text behind it.
    pub(crate) fn values(&self) -> (&str, Vec<(&Placeholder, &str)>) {
        let (mut first, mut values) = ("", Vec::new());
        for part in &self.parts {
            match (part, values.last_mut()) {
                (Part::Value(value), _) => values.push((value, "")),
                (Part::Literal(text), Some((_, behind))) => *behind = text.as_str(),
                (Part::Literal(text), None) => first = text.as_str(),
            }
        }
        (first, values)
    }

    /// Shows a fault inside of the template.
    pub(crate) fn fault(&self, at: Range<usize>, message: &str, errors: &mut Errors) {
        errors.at(span_of(&self.literal, at.clone()), drawn(message, &self.literal.value(), at));
    }
}

impl Parser<'_> {
    fn fault(&mut self, at: Range<usize>, message: &str) {
        self.template.fault(at, message, self.errors);
    }

    fn scan(&mut self) {
        let text = self.text.clone();
        if text.trim().is_empty() {
            return self.errors.on(
                &self.template.literal,
                "the lock key is empty; write what the lock is on, as in `\"order:{id}\"`",
            );
        }
        let mut at = 0;
        while let Some(next) = text[at..].chars().next() {
            let rest = &text[at..];
            if rest.starts_with("{{") || rest.starts_with("}}") {
                self.literal(next);
                self.template.label.push(next);
                self.template.label.push(next);
                at += 2;
            } else if next == '{' {
                let Some(length) = placeholder_length(&rest[1..]) else {
                    return self
                        .fault(at..text.len(), "unclosed `{` in the key template; write `{{` for a literal brace");
                };
                let inner = at + 1..at + 1 + length;
                self.template.label.push_str("{}");
                self.placeholder(&text[inner.clone()], at..inner.end + 1);
                at = inner.end + 1;
            } else if next == '}' {
                self.fault(at..at + 1, "unmatched `}` in the key template; write `}}` for a literal brace");
                at += 1;
            } else {
                if next.is_control() {
                    self.fault(
                        at..at + next.len_utf8(),
                        "a control character is not allowed in a key template; leave it out",
                    );
                }
                self.literal(next);
                self.template.label.push(next);
                at += next.len_utf8();
            }
        }
    }

    fn literal(&mut self, next: char) {
        if !next.is_alphanumeric() && next != '%' && !self.template.separators.contains(next) {
            self.template.separators.push(next);
        }
        match self.template.parts.last_mut() {
            Some(Part::Literal(text)) => text.push(next),
            _ => self.template.parts.push(Part::Literal(next.to_string())),
        }
    }

    /// `at` includes the braces.
    fn placeholder(&mut self, inner: &str, at: Range<usize>) {
        self.template.holes.push(at.clone());
        if self.touches() {
            self.fault(at.clone(), "two placeholders touch, so two sets of values could make the same key; put a separator such as `:` between");
        }
        let (source, spec) = split_spec(inner);
        let source = source.trim();
        let span = span_of(&self.template.literal, at.clone());
        // A faulty placeholder still stands there, so that its neighbours are judged rightly.
        let mut placeholder = Placeholder {
            source: source.to_owned(),
            tokens: TokenStream::new(),
            spec: Spec::Plain,
            span,
            is_constant: false,
        };
        match spec.map(parse_spec) {
            None => {}
            Some(Ok(spec)) => placeholder.spec = spec,
            Some(Err(problem)) => self.fault(at.clone(), &problem),
        }
        match self.value(source, span, &at) {
            Ok((tokens, is_constant)) => {
                placeholder.tokens = tokens;
                placeholder.is_constant = is_constant;
            }
            Err(problem) => self.fault(at, &problem),
        }
        self.template.parts.push(Part::Value(placeholder));
    }

    fn touches(&self) -> bool {
        match self.template.parts.as_slice() {
            [.., Part::Value(_)] => true,
            // Only text that no value can contain keeps two values apart.
            [.., Part::Value(_), Part::Literal(between)] => between.chars().all(|c| c.is_alphanumeric() || c == '%'),
            _ => false,
        }
    }

    /// The expression of a placeholder with spans that show the literal and names that mean the arguments, and whether it
    /// begins with a constant.
    fn value(&mut self, source: &str, span: Span, at: &Range<usize>) -> Result<(TokenStream, bool), String> {
        // Most placeholders are just an argument, for which nothing needs to be parsed.
        if let Some(binding) = self.scope.binding(source) {
            let mut ident = binding.ident.clone();
            ident.set_span(span.resolved_at(binding.ident.span()));
            self.template.mentions.insert(source.to_owned());
            return Ok((ident.into_token_stream(), false));
        }
        if source.is_empty() {
            return Err("empty placeholder in the key template; name an argument, as in `{id}`".to_owned());
        }
        if source.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err("positional placeholders mean nothing in a key; name an argument, as in `{id}`".to_owned());
        }
        if source.starts_with(|c: char| c.is_ascii_digit()) {
            // Not left to the lexer, which has errors of its own about malformed numbers.
            return Err(format!("a literal is not allowed in a key placeholder; {ALLOWED}"));
        }
        if let Some(name) = source.strip_prefix(['#', '$', ':', '%']) {
            let names = self.scope.names();
            let first = names.iter().map(String::as_str).find(|first| *first != "self").unwrap_or("id");
            let name = if self.scope.binding(name).is_some() { name } else { first };
            return Err(format!("`{{{source}}}` is no placeholder; did you mean `{{{name}}}`?"));
        }
        let readable = raw_if_keyword(source);
        let expr = lex(&readable)
            .and_then(|tokens| syn::parse2::<Expr>(tokens).ok())
            .ok_or_else(|| format!("`{{{source}}}` is no placeholder of a key; {ALLOWED}"))?;
        let expr = ungroup(expr);
        if let Some(construct) = refused_root(&expr) {
            return Err(format!("{construct} is not allowed in a key placeholder; {ALLOWED}"));
        }
        if let Some(root) = root_name(&expr) {
            self.check_root(&root, at)?;
        }
        let is_constant = self.is_constant(&expr);
        Ok((self.respan(expr.into_token_stream(), span), is_constant))
    }

    fn is_constant(&self, value: &Expr) -> bool {
        let Expr::Path(path) = root(value) else { return false };
        match path.path.get_ident() {
            Some(name) => {
                let name = name.unraw().to_string();
                name.starts_with(char::is_uppercase) && self.scope.function.binding(&name).is_none()
            }
            None => true,
        }
    }

    fn check_root(&mut self, root: &Ident, at: &Range<usize>) -> Result<(), String> {
        let name = root.unraw().to_string();
        if name == "_" || self.scope.binding(&name).is_some() {
            return Ok(());
        }
        if name == "self" {
            return Err(format!("{}{}", self.nothing_named("self"), self.can_use()));
        }
        if name.starts_with(char::is_uppercase) {
            return Ok(());
        }
        self.unknown.push((name, at.clone()));
        Ok(())
    }

    fn nothing_named(&self, name: &str) -> String {
        if self.scope.function.is_declaration {
            format!("no field named `{name}` in this declaration")
        } else {
            format!("no argument named `{name}` in this function")
        }
    }

    fn can_use(&self) -> String {
        let names = self.scope.names();
        if names.is_empty() {
            "; it has none that a key can use".to_owned()
        } else {
            format!("; the key can use {}", list(&names, "and"))
        }
    }

    /// Whether `format_args!` would read the template as we do.
    fn reads_as_format_args(&self) -> bool {
        self.template.parts.iter().all(|part| match part {
            Part::Literal(_) => true,
            Part::Value(placeholder) => placeholder.spec != Spec::Hash && is_plain_name(&placeholder.source),
        })
    }

    /// A name that is neither an argument nor a constant is left to the compiler where it can point into the literal.
    fn name_unknown(&mut self) {
        if self.unknown.is_empty() {
            return;
        }
        if self.reads_as_format_args() && self.errors.is_empty() && !self.scope.function.is_declaration {
            self.template.left_to_rustc = self.unknown.first().map(|(name, _)| name.clone());
            // The build fails at the hint; to name them here as well would be a second error.
            for part in &mut self.template.parts {
                if let Part::Value(placeholder) = part
                    && self.unknown.iter().any(|(name, _)| *name == placeholder.source)
                {
                    placeholder.tokens = TokenStream::new();
                }
            }
            return;
        }
        for (name, at) in std::mem::take(&mut self.unknown) {
            let names = self.scope.names();
            let advice = match nearest(&name, names.iter().map(String::as_str)) {
                Some(near) => format!("; did you mean `{near}`?"),
                None if self.scope.function.destructured_away => "; arguments destructured in the signature cannot be named in the key under `#[async_trait]`, bind it by name".to_owned(),
                None => self.can_use(),
            };
            self.fault(at, &format!("{}{advice}", self.nothing_named(&name)));
        }
    }

    /// Names of arguments get the hygiene of the argument; all else gets an expansion's, so that the compiler does not
    /// offer to replace the whole literal by a field name.
    fn respan(&mut self, tokens: TokenStream, span: Span) -> TokenStream {
        let elsewhere = Span::call_site().located_at(span);
        let mut member = false;
        let mut out = TokenStream::new();
        for token in tokens {
            let is_joint =
                matches!(&token, TokenTree::Punct(punct) if punct.as_char() == '.' || punct.as_char() == ':');
            let token = match token {
                TokenTree::Ident(mut ident) => {
                    let name = ident.unraw().to_string();
                    match self.scope.binding(&name) {
                        Some(binding) if !member => {
                            ident.set_span(span.resolved_at(binding.ident.span()));
                            self.template.mentions.insert(name);
                        }
                        _ => ident.set_span(elsewhere),
                    }
                    TokenTree::Ident(ident)
                }
                TokenTree::Group(group) => {
                    let mut copy = Group::new(group.delimiter(), self.respan(group.stream(), span));
                    copy.set_span(elsewhere);
                    TokenTree::Group(copy)
                }
                mut other => {
                    other.set_span(elsewhere);
                    other
                }
            };
            member = is_joint;
            out.extend([token]);
        }
        out
    }
}

/// How long the placeholder is that begins here, up to its closing brace; braces and brackets nest, strings are opaque.
fn placeholder_length(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    let mut in_string = false;
    let mut escaped = false;
    for (at, next) in text.char_indices() {
        match next {
            _ if escaped => escaped = false,
            '\\' if in_string => escaped = true,
            '"' => in_string = !in_string,
            _ if in_string => {}
            '{' => depth += 1,
            '}' if depth == 0 => return Some(at),
            '}' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Divides at the last colon that stands outside brackets and strings and is not half of `::`.
fn split_spec(inner: &str) -> (&str, Option<&str>) {
    let bytes = inner.as_bytes();
    let mut depth = 0_usize;
    let mut in_string = false;
    let mut found = None;
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if in_string => at += 1,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b':' if bytes.get(at + 1) == Some(&b':') => at += 1,
            // A leading colon is another language's placeholder.
            b':' if depth == 0 && at > 0 => found = Some(at),
            _ => {}
        }
        at += 1;
    }
    match found {
        Some(at) => (&inner[..at], Some(&inner[at + 1..])),
        None => (inner, None),
    }
}

fn parse_spec(spec: &str) -> Result<Spec, String> {
    if spec == "hash" {
        return Ok(Spec::Hash);
    }
    let refuse = || {
        Err(format!(
            "the format spec `:{spec}` is not allowed in a key, for two values could print alike; use `hash`, or for integers `0N`, `x`, `X`, `o` or `b`"
        ))
    };
    let (prefix, rest) = spec.strip_prefix('#').map_or((false, spec), |rest| (true, rest));
    let (digits, radix) = match rest.chars().last() {
        Some(radix @ ('x' | 'X' | 'o' | 'b')) => (&rest[..rest.len() - 1], Some(radix)),
        _ => (rest, None),
    };
    let width = match digits.strip_prefix('0') {
        None if digits.is_empty() => 0,
        Some(width)
            if !width.is_empty() && width.bytes().all(|byte| byte.is_ascii_digit()) && !width.starts_with('0') =>
        {
            match width.parse() {
                Ok(width) if width <= MAX_WIDTH => width,
                _ => {
                    return Err(format!("the width of `:{spec}` is over {MAX_WIDTH}; no integer has that many digits"));
                }
            }
        }
        _ => return refuse(),
    };
    if radix.is_none() && (prefix || width == 0) {
        return refuse();
    }
    Ok(Spec::Integer(Integer { prefix, width, radix }))
}

/// Whether this is one name, as `format_args!` could capture it.
fn is_plain_name(source: &str) -> bool {
    // The characters first: a lexer has errors of its own about malformed numbers.
    source.starts_with(|c: char| c.is_alphabetic() && !c.is_uppercase() || c == '_')
        && source.chars().all(|c| c.is_alphanumeric() || c == '_')
        && syn::parse_str::<Ident>(source).is_ok()
}

/// `{type}` means the argument `r#type`, as in `format!`.
fn raw_if_keyword(source: &str) -> String {
    let end = source.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(source.len());
    let (name, rest) = source.split_at(end);
    let is_word = name.starts_with(|c: char| c.is_alphabetic());
    let keeps_meaning = matches!(
        name,
        "self"
            | "Self"
            | "crate"
            | "super"
            | "if"
            | "match"
            | "loop"
            | "while"
            | "for"
            | "async"
            | "move"
            | "unsafe"
            | "const"
            | "return"
            | "break"
            | "true"
            | "false"
    );
    // A keyword that begins an expression keeps its meaning where more follows, so that the refusal can name it.
    let alone = rest.is_empty() && !matches!(name, "self" | "Self" | "crate" | "super" | "true" | "false");
    if is_word && syn::parse_str::<Ident>(name).is_err() && (alone || !keeps_meaning) {
        format!("r#{source}")
    } else {
        source.to_owned()
    }
}

/// The tokens of an expression's text; `None` also for text on which a lexer may give up loudly.
fn lex(text: &str) -> Option<TokenStream> {
    if text.matches('"').count() % 2 == 1 || text.contains("/*") || text.contains("//") {
        return None;
    }
    text.parse().ok()
}

/// What is wrong with the expression of a placeholder, as the name of a construct.
fn refused_root(expr: &Expr) -> Option<&'static str> {
    match expr {
        Expr::Path(path)
            if path.qself.is_some() || path.path.segments.iter().any(|segment| !segment.arguments.is_empty()) =>
        {
            Some("a path with type arguments")
        }
        Expr::Path(_) => None,
        Expr::Field(field) => refused_root(&field.base),
        Expr::MethodCall(call) => refused_root(&call.receiver).or_else(|| call.args.iter().find_map(refused_argument)),
        Expr::Index(index) => refused_root(&index.expr).or_else(|| refused_argument(&index.index)),
        Expr::Paren(inner) => refused_root(&inner.expr),
        Expr::Group(inner) => refused_root(&inner.expr),
        other => Some(construct(other)),
    }
}

/// The same for what stands between the brackets of a method call or an index.
fn refused_argument(expr: &Expr) -> Option<&'static str> {
    match expr {
        Expr::Lit(_) => None,
        Expr::Reference(reference) if reference.mutability.is_none() => refused_argument(&reference.expr),
        Expr::Unary(unary) => refused_argument(&unary.expr),
        Expr::Binary(binary) => refused_argument(&binary.left).or_else(|| refused_argument(&binary.right)),
        Expr::Paren(inner) => refused_argument(&inner.expr),
        other => refused_root(other),
    }
}

fn construct(expr: &Expr) -> &'static str {
    match expr {
        Expr::Await(_) => "`.await`",
        Expr::Try(_) => "`?`",
        Expr::Closure(_) => "a closure",
        Expr::Block(_) | Expr::Async(_) | Expr::Unsafe(_) | Expr::Const(_) | Expr::TryBlock(_) => "a block",
        Expr::If(_) | Expr::Match(_) | Expr::Loop(_) | Expr::While(_) | Expr::ForLoop(_) => "control flow",
        Expr::Return(_) | Expr::Break(_) | Expr::Continue(_) => "a jump",
        Expr::Call(_) => "a function call",
        Expr::Macro(_) => "a macro call",
        Expr::Lit(_) => "a literal",
        Expr::Reference(_) => "`&` (values are taken by reference anyway)",
        Expr::Binary(_) | Expr::Unary(_) | Expr::Cast(_) | Expr::Range(_) => "an operator",
        Expr::Assign(_) => "an assignment",
        _ => "this expression",
    }
}

/// What fields, elements and results of methods are taken of.
fn root(value: &Expr) -> &Expr {
    match value {
        Expr::Field(of) => root(&of.base),
        Expr::Index(of) => root(&of.expr),
        Expr::MethodCall(of) => root(&of.receiver),
        Expr::Paren(of) => root(&of.expr),
        Expr::Group(of) => root(&of.expr),
        Expr::Reference(of) => root(&of.expr),
        value => value,
    }
}

/// The single name that an expression begins with.
fn root_name(expr: &Expr) -> Option<Ident> {
    match expr {
        Expr::Path(path) => path.path.get_ident().cloned(),
        Expr::Field(field) => root_name(&field.base),
        Expr::MethodCall(call) => root_name(&call.receiver),
        Expr::Index(index) => root_name(&index.expr),
        Expr::Paren(inner) => root_name(&inner.expr),
        _ => None,
    }
}

/// The place inside the literal where the compiler lets us point there, else the whole literal.
fn span_of(literal: &LitStr, at: Range<usize>) -> Span {
    let token = literal.token();
    let text = token.to_string();
    let opening = match text.find('"') {
        // An escape moves everything behind it.
        Some(quote) if text.starts_with('r') || !text.contains('\\') => quote + 1,
        _ => return literal.span(),
    };
    token.subspan(at.start + opening..at.end + opening).unwrap_or_else(|| literal.span())
}

//! What stands between the brackets of the attribute, as a typed model. Only the form of each value is judged here; what
//! two options say together is for [`valid`](crate::valid), and the template for [`template`](crate::template).

use std::time::Duration;

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{Expr, ExprClosure, ExprPath, Lit, LitStr, Pat, Path, ReturnType, Token};

use crate::diagnostics::{Errors, nearest};
use crate::{duration, options, valid};

/// An option with the token that names it, which is where contradictions are shown.
pub(crate) struct Given<T> {
    pub(crate) name: Ident,
    pub(crate) value: T,
}

#[derive(Default)]
pub(crate) struct Options {
    pub(crate) key: Option<Given<LitStr>>,
    pub(crate) ttl: Option<Given<Time>>,
    pub(crate) wait: Option<Given<Wait>>,
    pub(crate) renew: Option<Given<Renew>>,
    pub(crate) max_hold: Option<Given<Time>>,
    pub(crate) min_hold: Option<Given<Time>>,
    pub(crate) reentrant: Option<Given<bool>>,
    pub(crate) on_busy: Option<Given<Refused>>,
    pub(crate) on_error: Option<Given<Refused>>,
    pub(crate) on_lost: Option<Given<OnLost>>,
    pub(crate) lease: Option<Given<Ident>>,
    pub(crate) manager: Option<Given<Expr>>,
    pub(crate) krate: Option<Given<Path>>,
    /// The names that were written, also of options whose value was refused: a missing one is not reported beside that.
    seen: Vec<String>,
}

/// A duration and when it is known.
pub(crate) enum Time {
    /// While the macro runs.
    Literal(Duration, LitStr),
    /// At build: a path to a constant.
    Constant(Expr),
    /// When the call starts.
    Computed(Expr),
}

pub(crate) enum Wait {
    For(Time),
    Forever,
}

pub(crate) enum Renew {
    Auto,
    Off,
    Every(Time),
}

/// What a call gives that did not get its lock.
pub(crate) enum Refused {
    Error,
    Skip,
    Closure(Box<Handler>),
}

pub(crate) enum OnLost {
    Cancel,
    Finish,
    Closure(Box<Handler>),
}

/// `|PATTERN| BODY`.
pub(crate) struct Handler {
    /// Of its first bar.
    pub(crate) span: Span,
    pub(crate) pattern: Pat,
    pub(crate) body: Expr,
}

impl Options {
    pub(crate) fn was_written(&self, name: &str) -> bool {
        self.seen.iter().any(|seen| seen == name)
    }
}

/// Reads all that can be read; every fault goes to `errors` and ends only its own option.
pub(crate) fn parse(tokens: TokenStream, errors: &mut Errors) -> Options {
    let mut options = Options::default();
    let before = errors.len();
    let outcome = (|input: ParseStream<'_>| options.all(input, errors)).parse2(tokens);
    if let Err(error) = outcome {
        errors.at(error.span(), error);
    }
    // An attribute that could not be read may well have meant to name the key.
    let unreadable = options.seen.is_empty() && errors.len() > before;
    if !options.was_written("key") && !unreadable {
        errors.at(
            Span::call_site(),
            "missing option `key`; write `#[distributed_lock(key = \"order:{id}\", ttl = \"5s\")]`",
        );
    }
    options
}

impl Options {
    fn all(&mut self, input: ParseStream<'_>, errors: &mut Errors) -> syn::Result<()> {
        while !input.is_empty() {
            self.item(input, errors)?;
            if input.peek(Token![,]) {
                input.parse::<Token![,]>()?;
            } else if !input.is_empty() {
                // Goes on as if the comma stood there, so that the option behind it is not reported as missing.
                errors.at(input.span(), "expected `,` between two options");
                if !starts_item(input) {
                    skip_item(input)?;
                }
            }
        }
        Ok(())
    }

    /// One option up to its comma.
    fn item(&mut self, input: ParseStream<'_>, errors: &mut Errors) -> syn::Result<()> {
        if !input.peek(Ident::peek_any) || is_typed_lock(input) {
            return self.unnamed(input, errors);
        }
        let name = input.call(Ident::parse_any)?;
        let text = name.to_string();
        if !options::is_known(&text) {
            options::refuse(&name, errors);
            // `keys` and typed locks stand where the key would.
            self.seen.push(
                if text == "keys" || nearest(&text, ["key"]).is_some() || text == "convert" || text == "name" {
                    "key".to_owned()
                } else {
                    text
                },
            );
            return skip_item(input);
        }
        if self.was_written(&text) {
            errors.at(name.span(), format!("option `{text}` is given twice"));
            return skip_item(input);
        }
        self.seen.push(text.clone());
        let colon = input.span();
        if input.peek(Token![:]) && !input.peek(Token![::]) {
            input.parse::<Token![:]>()?;
            errors.at(colon, format!("write `=` instead of `:`, as in `{text} = {}`", example(&text)));
            return skip_item(input);
        }
        if !input.peek(Token![=]) || input.peek(Token![==]) {
            errors.at(name.span(), format!("option `{text}` needs a value, as in `{text} = {}`", example(&text)));
            return skip_item(input);
        }
        input.parse::<Token![=]>()?;
        if input.is_empty() || input.peek(Token![,]) {
            errors.at(name.span(), format!("option `{text}` needs a value, as in `{text} = {}`", example(&text)));
            return Ok(());
        }
        match input.fork().parse::<Expr>() {
            Ok(_) => {
                let value = ungroup(input.parse()?);
                self.set(name, &text, value, errors);
                Ok(())
            }
            Err(error) => {
                errors.at(error.span(), format!("`{text}` has a value that is no expression: {error}"));
                skip_item(input)
            }
        }
    }

    /// What does not begin with the name of an option.
    fn unnamed(&mut self, input: ParseStream<'_>, errors: &mut Errors) -> syn::Result<()> {
        self.seen.push("key".to_owned());
        if input.peek(syn::token::Bracket) || input.peek(Ident::peek_any) || input.peek(Token![::]) {
            let tokens = take_item(input)?;
            options::not_yet(tokens, "a typed lock", "write `key = \"order:{id}\"`", errors);
        } else if let Ok(literal) = input.fork().parse::<LitStr>() {
            input.parse::<LitStr>()?;
            errors.on(&literal, format!("options are named; write `key = {}`", literal.to_token_stream()));
        } else {
            let span = input.span();
            skip_item(input)?;
            errors.at(span, "expected an option such as `key = \"order:{id}\"`");
        }
        Ok(())
    }

    fn set(&mut self, name: Ident, text: &str, value: Expr, errors: &mut Errors) {
        match text {
            "key" => self.key = template(&value, errors).map(|value| Given { name, value }),
            "ttl" => self.ttl = time(text, value, errors).map(|value| Given { name, value }),
            "max_hold" => self.max_hold = time(text, value, errors).map(|value| Given { name, value }),
            "min_hold" => self.min_hold = time(text, value, errors).map(|value| Given { name, value }),
            "wait" => {
                let value = match word(&value).as_deref() {
                    Some("forever") => Some(Wait::Forever),
                    _ if is_quoted(text, &value, &["forever"], errors) => None,
                    _ => time(text, value, errors).map(Wait::For),
                };
                self.wait = value.map(|value| Given { name, value });
            }
            "renew" => {
                let value = match word(&value).as_deref() {
                    Some("auto") => Some(Renew::Auto),
                    Some("off") => Some(Renew::Off),
                    _ if is_quoted(text, &value, &["auto", "off"], errors) => None,
                    _ => match &value {
                        Expr::Lit(literal) if matches!(literal.lit, Lit::Bool(_)) => {
                            choose(text, &value, &["auto", "off"], "a duration", errors)
                        }
                        _ => time(text, value, errors).map(Renew::Every),
                    },
                };
                self.renew = value.map(|value| Given { name, value });
            }
            "reentrant" => {
                let value = match word(&value).as_deref() {
                    Some("error") => Some(false),
                    Some("allow") => Some(true),
                    _ => choose(text, &value, &["error", "allow"], "", errors),
                };
                self.reentrant = value.map(|value| Given { name, value });
            }
            "on_busy" => self.on_busy = refused(text, value, errors).map(|value| Given { name, value }),
            "on_error" => self.on_error = refused(text, value, errors).map(|value| Given { name, value }),
            "on_lost" => {
                let value = match (word(&value).as_deref(), value) {
                    (Some("cancel"), _) => Some(OnLost::Cancel),
                    (Some("finish"), _) => Some(OnLost::Finish),
                    (_, Expr::Closure(closure)) => handler(text, closure, errors).map(OnLost::Closure),
                    (Some("skip"), value) => {
                        errors.on(value, "`on_lost` takes `cancel`, `finish` or a closure such as `|lost| EXPR`; `finish` lets the body run to its end");
                        None
                    }
                    (_, value) => {
                        choose(text, &value, &["cancel", "finish"], "a closure such as `|lost| EXPR`", errors)
                    }
                };
                self.on_lost = value.map(|value| Given { name, value });
            }
            "lease" => match &value {
                Expr::Path(path) if path.path.get_ident().is_some() => {
                    self.lease = path.path.get_ident().cloned().map(|value| Given { name, value });
                }
                _ => errors.on(value, "`lease` takes the name that the body gives the lease, as in `lease = lease`"),
            },
            "manager" => match text_of(&value) {
                None => self.manager = Some(Given { name, value }),
                Some(quoted) if syn::parse_str::<ExprPath>(&quoted).is_ok() => {
                    errors.on(value, format!("write `manager = {quoted}` without quotes"));
                }
                Some(_) => errors.on(
                    value,
                    "`manager` takes an expression that leads to a `LockManager`, as in `manager = self.locks`",
                ),
            },
            _ => match value {
                Expr::Path(path) if path.qself.is_none() => self.krate = Some(Given { name, value: path.path }),
                Expr::Lit(literal) if matches!(literal.lit, Lit::Str(_)) => {
                    let path = match &literal.lit {
                        Lit::Str(path) => path.value(),
                        _ => String::new(),
                    };
                    errors.on(literal, format!("write the path of the crate without quotes, as in `crate = {path}`"));
                }
                other => errors.on(
                    other,
                    "`crate` takes the path under which this crate knows distlock, as in `crate = my_lib::distlock`",
                ),
            },
        }
    }
}

/// Whether the next item has the form of a typed lock: a path that is followed by no `=`.
fn is_typed_lock(input: ParseStream<'_>) -> bool {
    let fork = input.fork();
    let Ok(name) = fork.call(Ident::parse_any) else { return false };
    fork.peek(Token![::]) || fork.peek(syn::token::Brace) || (starts_upper(&name.to_string()) && !fork.peek(Token![=]))
}

fn starts_upper(name: &str) -> bool {
    name.starts_with(|c: char| c.is_uppercase())
}

/// Whether an option seems to begin here.
fn starts_item(input: ParseStream<'_>) -> bool {
    let fork = input.fork();
    fork.call(Ident::parse_any).is_ok() && (fork.peek(Token![=]) || fork.peek(syn::token::Paren))
}

/// Goes to the comma that ends the item, or to the end.
fn skip_item(input: ParseStream<'_>) -> syn::Result<()> {
    take_item(input).map(drop)
}

fn take_item(input: ParseStream<'_>) -> syn::Result<TokenStream> {
    let mut tokens = TokenStream::new();
    while !input.is_empty() && !input.peek(Token![,]) {
        tokens.extend([input.parse::<TokenTree>()?]);
    }
    Ok(tokens)
}

/// A value for the message that asks for one.
fn example(option: &str) -> &'static str {
    match option {
        "key" => "\"order:{id}\"",
        "ttl" | "max_hold" | "min_hold" | "wait" => "\"5s\"",
        "renew" => "auto",
        "on_lost" => "cancel",
        "on_busy" => "skip",
        "on_error" | "reentrant" => "error",
        "lease" => "lease",
        "manager" => "self.locks",
        _ => "my_lib::distlock",
    }
}

/// What a fragment of `macro_rules!` stands in is invisible to the user, so it is to us.
pub(crate) fn ungroup(mut expr: Expr) -> Expr {
    while let Expr::Group(group) = expr {
        expr = *group.expr;
    }
    expr
}

/// What a string literal says.
fn text_of(value: &Expr) -> Option<String> {
    match value {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Str(text) => Some(text.value()),
            _ => None,
        },
        _ => None,
    }
}

/// Reports one of the words of an option that stands in quotes.
fn is_quoted(option: &str, value: &Expr, words: &[&str], errors: &mut Errors) -> bool {
    let quoted = text_of(value).filter(|text| words.contains(&text.as_str()));
    if let Some(text) = &quoted {
        errors.on(value, format!("write `{option} = {text}` without quotes"));
    }
    quoted.is_some()
}

/// What the examples call the argument of an option's closure.
fn parameter(option: &str) -> &'static str {
    match option {
        "on_busy" => "busy",
        "on_lost" => "lost",
        _ => "err",
    }
}

fn word(value: &Expr) -> Option<String> {
    match value {
        Expr::Path(path) => path.path.get_ident().map(Ident::to_string),
        _ => None,
    }
}

fn template(value: &Expr, errors: &mut Errors) -> Option<LitStr> {
    match value {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Str(template) if template.suffix().is_empty() => return Some(template.clone()),
            _ => errors.on(literal, "`key` must be a string literal such as `\"order:{id}\"`"),
        },
        Expr::Path(_) | Expr::Field(_) => {
            let source = value.to_token_stream().to_string().replace(' ', "");
            errors.on(value, format!("`key` takes a template; write `key = \"{{{source}}}\"`"));
        }
        computed => {
            let template = formatted(computed).unwrap_or_else(|| "\"order:{id}\"".to_owned());
            options::not_yet(computed, "a computed key", &format!("write a template such as `{template}`"), errors);
        }
    }
    None
}

/// The template of `format!("TEMPLATE")`, if it stands there alone.
fn formatted(computed: &Expr) -> Option<String> {
    let Expr::Macro(call) = computed else { return None };
    call.mac.parse_body::<LitStr>().ok().map(|template| template.to_token_stream().to_string())
}

const WAIT_OF_ZERO: &str = "`0` has no unit; leave `wait` out for one try";

fn time(option: &str, value: Expr, errors: &mut Errors) -> Option<Time> {
    let literal = match value {
        Expr::Lit(literal) => literal.lit,
        Expr::Path(path) if path.path.segments.last().is_some_and(|last| is_upper_case(&last.ident)) => {
            return Some(Time::Constant(Expr::Path(path)));
        }
        Expr::Unary(ref negative) if matches!((&negative.op, &*negative.expr), (syn::UnOp::Neg(_), Expr::Lit(_))) => {
            errors.on(value, format!("`{option}` is negative; write a duration such as `\"5s\"`"));
            return None;
        }
        computed => return Some(Time::Computed(computed)),
    };
    match literal {
        Lit::Str(text) => match duration::parse(&text.value()) {
            Ok(duration) => return Some(Time::Literal(duration, text)),
            Err(_) if option == "wait" && text.value().trim() == "0" => errors.on(text, WAIT_OF_ZERO),
            Err(problem) if matches!(option, "ttl" | "min_hold") && duration::is_in_days(&text.value()) => {
                errors.on(text, format!("{problem}, and at most `{}`", duration::show(valid::MAX_TTL)));
            }
            Err(problem) => errors.on(text, problem),
        },
        Lit::Int(number) if option == "wait" && number.base10_digits() == "0" => errors.on(number, WAIT_OF_ZERO),
        Lit::Int(number) if number.suffix().is_empty() => errors.on(&number, duration::no_unit(number.base10_digits())),
        Lit::Int(_) | Lit::Float(_) => {
            let text = literal.to_token_stream().to_string();
            errors.on(
                literal,
                format!("`{text}` is not a duration; write it as a string of whole numbers, as in `\"5s\"`"),
            );
        }
        other => errors.on(other, format!("`{option}` takes a duration such as `\"5s\"`")),
    }
    None
}

fn is_upper_case(name: &Ident) -> bool {
    let text = name.unraw().to_string();
    text.chars().any(char::is_uppercase) && !text.chars().any(char::is_lowercase)
}

fn refused(option: &str, value: Expr, errors: &mut Errors) -> Option<Refused> {
    match (word(&value).as_deref(), value) {
        (Some("error"), _) => Some(Refused::Error),
        (Some("skip"), _) => Some(Refused::Skip),
        (_, Expr::Closure(closure)) => handler(option, closure, errors).map(Refused::Closure),
        (_, value) => {
            let closure = format!("a closure such as `|{}| EXPR`", parameter(option));
            choose(option, &value, &["error", "skip"], &closure, errors)
        }
    }
}

fn handler(option: &str, closure: ExprClosure, errors: &mut Errors) -> Option<Box<Handler>> {
    let plain = format!("is a plain closure; write `|{}| EXPR`", parameter(option));
    let problem = if closure.asyncness.is_some() {
        "is pasted into the async function, so `.await` works in it; leave out `async`"
    } else if !matches!(closure.output, ReturnType::Default) {
        "gives what the function gives; leave out its return type"
    } else if closure.inputs.len() != 1 {
        "takes one argument; write `|_| EXPR` if you do not need it"
    } else if closure.capture.is_some() {
        "is pasted into the function, so it captures nothing; leave out `move`"
    } else if closure.constness.is_some() || closure.lifetimes.is_some() {
        plain.as_str()
    } else {
        let pattern = closure.inputs.into_iter().next()?;
        return Some(Box::new(Handler { span: closure.inputs_begin.span, pattern, body: *closure.body }));
    };
    errors.on(closure, format!("the closure of `{option}` {problem}"));
    None
}

/// Reports a value that is none of those that the option takes.
fn choose<T>(option: &str, value: &Expr, words: &[&str], more: &str, errors: &mut Errors) -> Option<T> {
    if is_quoted(option, value, words, errors) {
        return None;
    }
    let near = word(value).and_then(|given| nearest(&given, words.iter().copied()));
    let mut choice: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    choice.extend((!more.is_empty()).then(|| more.to_owned()));
    let last = choice.pop().unwrap_or_default();
    let choice = if choice.is_empty() { last } else { format!("{} or {last}", choice.join(", ")) };
    match near {
        Some(near) => errors.on(value, format!("`{option}` takes {choice}; did you mean `{near}`?")),
        None => errors.on(value, format!("`{option}` takes {choice}")),
    }
    None
}

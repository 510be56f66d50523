//! What stands between the brackets of the attribute, as a typed model. Only the form of each value is judged here; what
//! two options say together is for [`valid`](crate::valid), and the template for [`template`](crate::template).

use std::time::Duration;

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Expr, ExprPath, Lit, LitStr, Pat, Path, Token};

use crate::diagnostics::Errors;
use crate::lints::Lint;
use crate::options;
use crate::source::{self, Source};
use crate::values::{after, choose, handler, is_quoted, refused, text_of, time, word};

/// An option with the token that names it, which is where contradictions are shown.
pub(crate) struct Given<T> {
    pub(crate) name: Ident,
    pub(crate) value: T,
}

#[derive(Default)]
pub(crate) struct Options {
    /// `key`, `keys` or typed locks; the name of typed ones is that of the first.
    pub(crate) source: Option<Given<Source>>,
    pub(crate) label: Option<Given<LitStr>>,
    pub(crate) ttl: Option<Given<Time>>,
    pub(crate) wait: Option<Given<Wait>>,
    pub(crate) renew: Option<Given<Renew>>,
    pub(crate) max_hold: Option<Given<Time>>,
    pub(crate) min_hold: Option<Given<Time>>,
    pub(crate) after_ok: Option<Given<After>>,
    pub(crate) after_err: Option<Given<After>>,
    pub(crate) reentrant: Option<Given<bool>>,
    pub(crate) on_busy: Option<Given<Refused>>,
    pub(crate) on_error: Option<Given<Refused>>,
    pub(crate) on_lost: Option<Given<OnLost>>,
    pub(crate) lease: Option<Given<Ident>>,
    pub(crate) manager: Option<Given<Expr>>,
    pub(crate) map_err: Option<Given<ExprPath>>,
    pub(crate) allowed: Vec<Lint>,
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

/// What becomes of the key when the body has ended.
pub(crate) enum After {
    Release,
    Keep(Time),
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
    let before = errors.len();
    let options = parse_some(tokens, errors);
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

/// The same where the key need not be among them.
pub(crate) fn parse_some(tokens: TokenStream, errors: &mut Errors) -> Options {
    let mut options = Options::default();
    let outcome = (|input: ParseStream<'_>| options.all(input, errors)).parse2(tokens);
    if let Err(error) = outcome {
        errors.at(error.span(), error);
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
        if !input.peek(Ident::peek_any) || source::is_typed(input) {
            return self.unnamed(input, errors);
        }
        let name = input.call(Ident::parse_any)?;
        let text = name.to_string();
        if !options::is_known(&text) {
            options::refuse(&name, errors);
            // A word that was meant to be the key stands where the key would.
            self.seen.push(if options::means_key(&text) { "key".to_owned() } else { text });
            return skip_item(input);
        }
        let is_typed = matches!(self.source, Some(Given { value: Source::Typed(_), .. }));
        // `keys` stands for `key` too.
        let is_excluded = match text.as_str() {
            "key" => self.was_written("keys"),
            "keys" => self.was_written("key") && !self.was_written("keys") && !is_typed,
            _ => false,
        };
        if is_excluded {
            errors.at(
                name.span(),
                "`keys` and `key` exclude each other; write all of them as `keys = [\"order:{order}\", \"user:{user}\"]`",
            );
            return skip_item(input);
        }
        if self.was_written(&text) && text != "allow" && !is_typed {
            errors.at(name.span(), format!("option `{text}` is given twice; leave one out"));
            return skip_item(input);
        }
        if text == "key" || text == "keys" {
            if self.was_written("key") {
                errors.at(
                    name.span(),
                    "the lock has its key already; write several as `keys = [\"order:{order}\", \"user:{user}\"]`",
                );
                return skip_item(input);
            }
            self.seen.push("key".to_owned());
        }
        self.seen.push(text.clone());
        if input.peek(syn::token::Paren) && (text == "keys" || text == "allow") {
            if text == "keys" {
                self.source = source::for_each(input, errors)?.map(|value| Given { name, value });
                return Ok(());
            }
            return self.allow(input, errors);
        }
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

    /// `allow(LINT, …)`.
    fn allow(&mut self, input: ParseStream<'_>, errors: &mut Errors) -> syn::Result<()> {
        let content;
        syn::parenthesized!(content in input);
        match Punctuated::<Path, Token![,]>::parse_terminated(&content) {
            Ok(names) => self.allowed.extend(names.iter().filter_map(|name| Lint::named(name, errors))),
            Err(error) => {
                // What is left must be taken, or it is an error of its own.
                content.parse::<TokenStream>()?;
                errors.at(error.span(), "`allow(..)` takes names of lints, as in `allow(literal_arg_name)`");
            }
        }
        Ok(())
    }

    /// What does not begin with the name of an option.
    fn unnamed(&mut self, input: ParseStream<'_>, errors: &mut Errors) -> syn::Result<()> {
        let has_key = self.was_written("key");
        self.seen.push("key".to_owned());
        if source::is_typed(input) {
            // Not up to the next comma, for one may stand between the arguments of the type.
            match source::typed(input) {
                Ok((place, _)) if has_key => {
                    errors.at(place, "the lock has its key already; write several typed locks as `[OneLock { .. }, OtherLock { .. }]`");
                }
                Ok((place, value)) => self.source = Some(Given { name: Ident::new("key", place), value }),
                Err(error) => {
                    errors.at(error.span(), error);
                    skip_item(input)?;
                }
            }
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
            "key" => self.source = source::one(value, errors).map(|value| Given { name, value }),
            "keys" => self.source = source::several(value, errors).map(|value| Given { name, value }),
            "label" => self.label = label(value, errors).map(|value| Given { name, value }),
            "after_ok" => self.after_ok = after(text, value, errors).map(|value| Given { name, value }),
            "after_err" => self.after_err = after(text, value, errors).map(|value| Given { name, value }),
            "map_err" => match value {
                Expr::Path(path) => self.map_err = Some(Given { name, value: path }),
                other => errors.on(
                    other,
                    "`map_err` takes the path of a function from `LockError` to the error of this function, as in `map_err = AppError::from_lock`",
                ),
            },
            "allow" => errors.at(name.span(), "write `allow(literal_arg_name)`, without `=`"),
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
                        Expr::Lit(syn::ExprLit { lit: Lit::Bool(on), .. }) => {
                            let word = if on.value { "auto" } else { "off" };
                            errors.on(&value, format!("`renew` takes `auto`, `off` or a duration; did you mean `{word}`?"));
                            None
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

/// Whether an option seems to begin here.
fn starts_item(input: ParseStream<'_>) -> bool {
    let fork = input.fork();
    fork.call(Ident::parse_any).is_ok() && (fork.peek(Token![=]) || fork.peek(syn::token::Paren))
}

/// Goes to the comma that ends the item, or to the end.
fn skip_item(input: ParseStream<'_>) -> syn::Result<()> {
    while !input.is_empty() && !input.peek(Token![,]) {
        input.parse::<TokenTree>()?;
    }
    Ok(())
}

/// A value for the message that asks for one.
fn example(option: &str) -> &'static str {
    match option {
        "key" => "\"order:{id}\"",
        "keys" => "[\"order:{order}\", \"user:{user}\"]",
        "label" => "\"order\"",
        "after_ok" | "after_err" => "keep(\"24h\")",
        "map_err" => "AppError::from_lock",
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

/// What the lock is called in metrics and events: the same for all calls.
fn label(value: Expr, errors: &mut Errors) -> Option<LitStr> {
    let Expr::Lit(syn::ExprLit { lit: Lit::Str(label), .. }) = value else {
        errors.on(value, "`label` takes a string literal such as `\"order\"`, the same for all calls");
        return None;
    };
    let text = label.value();
    let problem = if text.trim().is_empty() {
        "the label is empty; write what the lock is called in metrics, as in `\"order\"`"
    } else if text.contains(char::is_control) {
        "a control character is not allowed in a label; leave it out"
    } else if text.replace("{}", "").contains(['{', '}']) {
        "a label is the same for all calls, so that metrics stay few; write it without placeholders, as in `\"order\"`"
    } else {
        return Some(label);
    };
    errors.on(label, problem);
    None
}

/// What a fragment of `macro_rules!` stands in is invisible to the user, so it is to us.
pub(crate) fn ungroup(mut expr: Expr) -> Expr {
    while let Expr::Group(group) = expr {
        expr = *group.expr;
    }
    expr
}

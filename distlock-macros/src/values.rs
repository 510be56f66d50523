//! The values of options, each by its form: durations, words and closures. What they say together is for
//! [`valid`](crate::valid).

use proc_macro2::Ident;
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::{Expr, ExprClosure, Lit, ReturnType};

use crate::attribute::{After, Handler, Refused, Time, ungroup};
use crate::diagnostics::{Errors, nearest};
use crate::{duration, valid};

/// What a string literal says.
pub(crate) fn text_of(value: &Expr) -> Option<String> {
    match value {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Str(text) => Some(text.value()),
            _ => None,
        },
        _ => None,
    }
}

/// Reports one of the words of an option that stands in quotes.
pub(crate) fn is_quoted(option: &str, value: &Expr, words: &[&str], errors: &mut Errors) -> bool {
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

pub(crate) fn word(value: &Expr) -> Option<String> {
    match value {
        Expr::Path(path) => path.path.get_ident().map(Ident::to_string),
        _ => None,
    }
}

const WAIT_OF_ZERO: &str = "`0` has no unit; leave `wait` out for one try";

pub(crate) fn time(option: &str, value: Expr, errors: &mut Errors) -> Option<Time> {
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

pub(crate) fn refused(option: &str, value: Expr, errors: &mut Errors) -> Option<Refused> {
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

/// `release` or `keep(DURATION)`.
pub(crate) fn after(option: &str, value: Expr, errors: &mut Errors) -> Option<After> {
    const KEEP: &str = "`keep(\"24h\")`";
    match value {
        Expr::Call(call) if word(&call.func).as_deref() == Some("keep") => {
            let mut arguments = call.args.into_iter();
            match (arguments.next(), arguments.next()) {
                (Some(duration), None) => time(option, ungroup(duration), errors).map(After::Keep),
                (None, _) => {
                    errors.on(call.func, format!("`keep` takes how long the key stays taken, as in {KEEP}"));
                    None
                }
                (Some(_), Some(second)) => {
                    errors.on(second, format!("`keep` takes one duration, as in {KEEP}"));
                    None
                }
            }
        }
        Expr::Call(call)
            if word(&call.func).is_some_and(|given| nearest(&given.to_lowercase(), ["keep"]).is_some()) =>
        {
            errors.on(call.func, format!("`{option}` takes `release` or {KEEP}; did you mean `keep`?"));
            None
        }
        value => match word(&value).as_deref() {
            Some("release") => Some(After::Release),
            Some("keep") => {
                errors.on(value, format!("`keep` takes how long the key stays taken, as in {KEEP}"));
                None
            }
            _ => {
                if let Some(text) = text_of(&value)
                    && duration::parse(&text).is_ok()
                {
                    errors.on(value, format!("write `{option} = keep(\"{text}\")`"));
                    return None;
                }
                choose(option, &value, &["release"], KEEP, errors)
            }
        },
    }
}

pub(crate) fn handler(option: &str, closure: ExprClosure, errors: &mut Errors) -> Option<Box<Handler>> {
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
pub(crate) fn choose<T>(option: &str, value: &Expr, words: &[&str], more: &str, errors: &mut Errors) -> Option<T> {
    if is_quoted(option, value, words, errors) {
        return None;
    }
    let near = word(value).and_then(|given| nearest(&given.to_lowercase(), words.iter().copied()));
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

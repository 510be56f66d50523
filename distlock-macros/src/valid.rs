//! What two options say together, and what an option says about the function: every cross-check of the attribute.

use std::time::Duration;

use quote::ToTokens;
use syn::LitStr;
use syn::ext::IdentExt;

use crate::attribute::{After, Given, OnLost, Options, Refused, Renew, Time, Wait};
use crate::deferred;
use crate::diagnostics::{Errors, nearest};
use crate::duration::show;
use crate::free::first_use;
use crate::lints::{self, Lint};
use crate::shape::Function;
use crate::source::Source;
use crate::values::word;

/// The shortest ttl: below it, one lost packet is a lost lease.
const MIN_TTL: Duration = Duration::from_millis(10);

/// The longest ttl; a manager may lower it.
pub(crate) const MAX_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// The least pause between two renewals.
const MIN_RENEW: Duration = Duration::from_millis(3);

pub(crate) fn check(options: &Options, function: &Function, errors: &mut Errors) {
    // A typed or computed key may come with a declaration that names a `ttl`.
    let declared =
        options.source.as_ref().is_some_and(|given| matches!(given.value, Source::Typed(_) | Source::Computed(_)));
    settings(options, declared, errors);
    names(options, function, errors);
    lost_arguments(options, function, errors);
    manager_of_main(options, function, errors);
    words(options, function, errors);
    after(options, errors);
    mapping(options, errors);
    if !options.allowed.contains(&Lint::OpenTransaction) {
        lints::open_transaction(function, errors);
    }
    if !options.allowed.contains(&Lint::DeferredWork) {
        deferred::check(function, errors);
    }
}

/// What the settings say, by themselves and together. Some of them may be inherited from a declaration or a set.
pub(crate) fn settings(options: &Options, inherits: bool, errors: &mut Errors) {
    bounds(options, errors);
    renewal(options, inherits, errors);
    holding(options, errors);
}

fn bounds(options: &Options, errors: &mut Errors) {
    if let Some(Given { value: Time::Literal(ttl, literal), .. }) = &options.ttl {
        if ttl.is_zero() {
            errors.on(literal, "the duration must be longer than zero; `ttl` is at least `10ms`");
        } else if *ttl < MIN_TTL {
            errors.on(
                literal,
                format!("`ttl` must be at least `{}`; a shorter one is lost with the first slow reply", show(MIN_TTL)),
            );
        } else if *ttl > MAX_TTL {
            errors.on(literal, format!("`ttl` must be at most `{}`; it is the time after which a crashed holder's lock ends, and the lease is renewed while the body runs", show(MAX_TTL)));
        }
    }
    if let Some(Given { value: Time::Literal(held, literal), .. }) = &options.min_hold
        && *held > MAX_TTL
    {
        errors.on(
            literal,
            format!(
                "`min_hold` must be at most `{}`; the key stays that long even if the body ends at once",
                show(MAX_TTL)
            ),
        );
    }
}

fn renewal(options: &Options, inherits: bool, errors: &mut Errors) {
    let ttl = literal(options.ttl.as_ref()).map(|(ttl, _)| ttl);
    match &options.renew {
        Some(Given { name, value: Renew::Off }) => {
            if let Some(max_hold) = &options.max_hold {
                errors.at(
                    max_hold.name.span(),
                    "`max_hold` contradicts `renew = off`; without renewal `ttl` is the longest time the lease is held",
                );
            } else if !options.was_written("ttl") && !inherits {
                errors.at(name.span(), "`renew = off` needs a `ttl`; without renewal it is the longest time the body has, as in `ttl = \"30s\"`");
            }
        }
        Some(Given { value: Renew::Every(Time::Literal(interval, text)), .. }) => {
            if interval.is_zero() {
                errors.on(text, "the duration must be longer than zero; write `renew = off` if you want no renewal");
            } else if *interval < MIN_RENEW {
                errors.on(
                    text,
                    format!("`renew` must be at least `{}`; leave it out for a third of `ttl`", show(MIN_RENEW)),
                );
            } else if let Some(ttl) = ttl
                && *interval > ttl / 2
            {
                errors.on(
                    text,
                    format!(
                        "`renew` must be at most half of `ttl`, here `{}`; leave it out for a third of it",
                        show(ttl / 2)
                    ),
                );
            }
        }
        _ => {}
    }
}

fn holding(options: &Options, errors: &mut Errors) {
    let Options { ttl, max_hold, min_hold, .. } = options;
    let [ttl, max_hold, min_hold] = [ttl, max_hold, min_hold].map(|given| literal(given.as_ref()));
    if let (Some((ttl, _)), Some((max_hold, text))) = (ttl, max_hold)
        && max_hold < ttl
    {
        errors
            .on(text, format!("`max_hold` is shorter than `ttl`; make it at least `{}`, or shorten `ttl`", show(ttl)));
    }
    if let (Some((min_hold, text)), Some((max_hold, _))) = (min_hold, max_hold)
        && min_hold > max_hold
    {
        errors.on(text, format!("`min_hold` is longer than `max_hold`; make it at most `{}`", show(max_hold)));
    }
}

/// A name that is no argument and nearly a word of the option.
fn words(options: &Options, function: &Function, errors: &mut Errors) {
    let wait = match &options.wait {
        Some(Given { value: Wait::For(time), .. }) => Some(("wait", time, ["forever"].as_slice())),
        _ => None,
    };
    let renew = match &options.renew {
        Some(Given { value: Renew::Every(time), .. }) => Some(("renew", time, ["auto", "off"].as_slice())),
        _ => None,
    };
    for (option, time, words) in [wait, renew].into_iter().flatten() {
        let Time::Computed(value) = time else { continue };
        let Some(name) = word(value).filter(|name| function.binding(name).is_none()) else { continue };
        if let Some(near) = nearest(&name, words.iter().copied()) {
            errors.on(value, format!("no argument named `{name}`; did you mean `{option} = {near}`?"));
        }
    }
}

fn after(options: &Options, errors: &mut Errors) {
    for given in [&options.after_ok, &options.after_err].into_iter().flatten() {
        let Given { name, value: After::Keep(Time::Literal(keep, literal)) } = given else { continue };
        if keep.is_zero() {
            errors.on(
                literal,
                format!("the duration must be longer than zero; write `{name} = release` to give the key back at once"),
            );
        } else if *keep > MAX_TTL {
            errors.on(
                literal,
                format!(
                    "`keep` must be at most `{}`; what has to stay done for longer belongs into a table",
                    show(MAX_TTL)
                ),
            );
        }
    }
}

/// A function that makes an error is of no use where every failure has a value of its own.
fn mapping(options: &Options, errors: &mut Errors) {
    let fails = |given: &Option<Given<Refused>>| matches!(given, None | Some(Given { value: Refused::Error, .. }));
    let Some(Given { name, .. }) = &options.map_err else { return };
    let is_cancelled = matches!(options.on_lost, None | Some(Given { value: OnLost::Cancel, .. }));
    if !fails(&options.on_busy) && !fails(&options.on_error) && !is_cancelled {
        errors.at(
            name.span(),
            "`map_err` is never called, for `on_busy`, `on_error` and `on_lost` say what the call gives; leave it out",
        );
    }
}

fn names(options: &Options, function: &Function, errors: &mut Errors) {
    if let Some(Given { value: lease, .. }) = &options.lease
        && (lease == "self" || function.binding(&lease.to_string()).is_some())
    {
        errors.on(lease, format!("`lease = {lease}` hides the argument `{lease}`; choose another name"));
    }
}

/// The closure of `on_lost` is no part of the body, which the arguments went into.
fn lost_arguments(options: &Options, function: &Function, errors: &mut Errors) {
    let Some(Given { value: OnLost::Closure(handler), .. }) = &options.on_lost else { return };
    let (pattern, body) = (handler.pattern.to_token_stream(), handler.body.to_token_stream());
    // An argument with a `cfg` may not be there, and its name may mean something else then.
    let arguments = function.bindings.iter().filter(|binding| binding.cfgs.is_empty());
    let mut used = arguments.filter_map(|binding| {
        let name = binding.ident.unraw().to_string();
        first_use(&name, &pattern, &body).map(|span| (name, span))
    });
    // One closure that reaches for the arguments is one mistake.
    if let Some((name, span)) = used.next() {
        errors.at(span, format!("the closure of `on_lost` cannot use the argument `{name}`, for the body had it; use the `Lost` it is given, or return the value from the body"));
    }
}

/// Above `#[tokio::main]` the body of `main` is under the lock, and so is what it says about the manager.
fn manager_of_main(options: &Options, function: &Function, errors: &mut Errors) {
    if options.was_written("manager") {
        return;
    }
    let is_main = |attribute: &&syn::Attribute| {
        let names = attribute.path().segments.iter().map(|segment| segment.ident.to_string());
        names.eq(["tokio", "main"])
    };
    if let Some(main) = function.attrs.iter().find(is_main) {
        errors.on(main, "the lock is taken before the body of `main`, so `distlock::init` in it comes too late; name the manager, as in `manager = LockManager::connect(URL).await?`, or lock a function that `main` calls");
    }
}

/// A duration that is known while the macro runs, with its place.
fn literal(given: Option<&Given<Time>>) -> Option<(Duration, &LitStr)> {
    match &given?.value {
        Time::Literal(duration, text) => Some((*duration, text)),
        Time::Constant(_) | Time::Computed(_) => None,
    }
}

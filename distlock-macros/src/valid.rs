//! What two options say together, and what an option says about the function: every cross-check of the attribute.

use std::time::Duration;

use crate::attribute::{Given, Options, Renew, Time};
use crate::diagnostics::Errors;
use crate::duration::show;
use crate::shape::Function;

/// The shortest ttl: below it, one lost packet is a lost lease.
const MIN_TTL: Duration = Duration::from_millis(10);

/// The longest ttl; a manager may lower it.
const MAX_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// The least pause between two renewals.
const MIN_RENEW: Duration = Duration::from_millis(3);

pub(crate) fn check(options: &Options, function: &Function, errors: &mut Errors) {
    bounds(options, errors);
    renewal(options, errors);
    holding(options, errors);
    names(options, function, errors);
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

fn renewal(options: &Options, errors: &mut Errors) {
    let ttl = options.ttl.as_ref().and_then(|ttl| literal(&ttl.value));
    match &options.renew {
        Some(Given { name, value: Renew::Off }) => {
            if !options.was_written("ttl") {
                errors.at(name.span(), "`renew = off` needs a `ttl`; without renewal it is the longest time the body has, as in `ttl = \"30s\"`");
            }
            if let Some(max_hold) = &options.max_hold {
                errors.at(
                    max_hold.name.span(),
                    "`max_hold` contradicts `renew = off`; without renewal `ttl` is the longest time the lease is held",
                );
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
    let ttl = options.ttl.as_ref().and_then(|ttl| literal(&ttl.value));
    let max_hold = options.max_hold.as_ref().and_then(|max_hold| literal(&max_hold.value));
    if let (Some(ttl), Some(max_hold), Some(given)) = (ttl, max_hold, &options.max_hold)
        && max_hold < ttl
    {
        errors.at(
            given.name.span(),
            format!("`max_hold` is shorter than `ttl`; make it at least `{}`, or shorten `ttl`", show(ttl)),
        );
    }
    let min_hold = options.min_hold.as_ref().and_then(|min_hold| literal(&min_hold.value));
    if let (Some(min_hold), Some(max_hold), Some(given)) = (min_hold, max_hold, &options.min_hold)
        && min_hold > max_hold
    {
        errors.at(
            given.name.span(),
            format!("`min_hold` is longer than `max_hold`; make it at most `{}`", show(max_hold)),
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

fn literal(time: &Time) -> Option<Duration> {
    match time {
        Time::Literal(duration, _) => Some(*duration),
        Time::Constant(_) | Time::Computed(_) => None,
    }
}

//! The names of the options: those that work, those that are still to come, and the words that other lock libraries use.

use proc_macro2::Ident;

use crate::diagnostics::{Errors, list, nearest};

/// The options that work, in the order in which they are listed to the user.
const KNOWN: [&str; 19] = [
    "key",
    "keys",
    "label",
    "ttl",
    "wait",
    "renew",
    "max_hold",
    "min_hold",
    "after_ok",
    "after_err",
    "on_busy",
    "on_error",
    "on_lost",
    "lease",
    "reentrant",
    "manager",
    "map_err",
    "allow",
    "crate",
];

/// The options that are designed and not built yet. A part that builds one takes it from here.
const NOT_YET: [&str; 3] = ["when", "mode", "permits"];

/// What other lock libraries call a thing, and what it is called here.
const ELSEWHERE: [(&[&str], &str); 7] = [
    (
        &["lock_at_most_for", "lease_time", "expire", "expiry", "time"],
        "the time after which a crashed holder's lock ends is `ttl`",
    ),
    (&["lock_at_least_for"], "the shortest time the key stays taken is `min_hold`"),
    (&["timeout", "wait_time"], "the time to get the lock is `wait`, the longest time to keep it is `max_hold`"),
    (&["skip"], "to leave the call out while somebody else holds the lock, write `on_busy = skip`"),
    (&["lock", "lock_key", "lock_name", "resource"], "did you mean `key`?"),
    (&["convert"], "what the lock is on is written in `key`, as in `key = \"order:{id}\"`"),
    (&["name"], "what the lock is on is `key`, what it is called in metrics is `label`"),
];

/// Reports an option that cannot be used.
pub(crate) fn refuse(name: &Ident, errors: &mut Errors) {
    let text = name.to_string();
    if NOT_YET.contains(&text.as_str()) {
        return not_yet(name, &format!("option `{text}`"), "leave it out in this version", errors);
    }
    if let Some((_, hint)) = ELSEWHERE.iter().find(|(words, _)| words.contains(&text.as_str())) {
        return errors.at(name.span(), format!("unknown option `{text}`; {hint}"));
    }
    match nearest(&text.to_lowercase(), KNOWN.into_iter().chain(NOT_YET)) {
        Some(near) => errors.at(name.span(), format!("unknown option `{text}`; did you mean `{near}`?")),
        None => errors.at(name.span(), format!("unknown option `{text}`; expected one of {}", list(&KNOWN, "or"))),
    }
}

/// The one sentence for all that is designed and not built yet.
pub(crate) fn not_yet(tokens: impl quote::ToTokens, what: &str, instead: &str, errors: &mut Errors) {
    errors.on(tokens, format!("{what} is not available yet; {instead}"));
}

/// Whether a word that is no option was most likely meant to be the key.
pub(crate) fn means_key(text: &str) -> bool {
    const WORDS: [&str; 6] = ["convert", "name", "lock", "lock_key", "lock_name", "resource"];
    WORDS.contains(&text) || nearest(&text.to_lowercase(), ["key", "keys"]).is_some()
}

pub(crate) fn is_known(name: &str) -> bool {
    KNOWN.contains(&name)
}

/// Whether functions have an option of this name, now or later.
pub(crate) fn is_of_functions(name: &str) -> bool {
    KNOWN.contains(&name) || NOT_YET.contains(&name)
}

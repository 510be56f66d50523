//! Reading what the scripts answer.

use std::time::{Duration, UNIX_EPOCH};

use redis::Value;

use crate::error::{Holder, Occupant};
use crate::store::{Acquired, FencingTokens, Released, Renewed, StoreError};

pub(super) fn garbled(script: &str) -> StoreError {
    StoreError::unanswered(format!(
        "the server's answer to the {script} script cannot be read; check that a Redis or Valkey server of version 6.2 or later is behind the address"
    ))
}

pub(super) fn granted(fencing_tokens: FencingTokens, reserved: bool) -> Acquired {
    Acquired::Granted { fencing_tokens, reserved, rest: None }
}

pub(super) fn acquired(value: Value, keys: usize) -> Option<Acquired> {
    let parts = match value {
        Value::Array(parts) => parts,
        Value::Int(token) if keys == 1 => {
            return Some(granted(FencingTokens { first: u64::try_from(token).ok()?, more: Box::default() }, true));
        }
        _ => return None,
    };
    let place = || match *parts.get(1)? {
        Value::Int(place) => usize::try_from(place).ok().filter(|place| *place < keys),
        _ => None,
    };
    match text(parts.first()?)? {
        "granted" => {
            let tokens: Option<Vec<u64>> = parts.iter().skip(1).map(number).collect();
            let tokens = FencingTokens::new(tokens?.into_iter()).filter(|tokens| tokens.len() == keys);
            tokens.map(|tokens| granted(tokens, false))
        }
        "held" => {
            let Value::Int(left) = *parts.get(2)? else { return None };
            // A foreign client's value may be any bytes; it still holds the key.
            let value = text(parts.get(3)?).unwrap_or_default();
            let occupant = occupant(value, u64::try_from(left).ok()?, number(parts.get(4)?)?);
            let ticket = Some(number(parts.get(5)?)?).filter(|ticket| *ticket != 0);
            Some(Acquired::Held { place: place()?, occupant, ticket, leftovers: false })
        }
        "dead" => Some(Acquired::Dead),
        "foreign" => Some(Acquired::Foreign { place: place()?, what: foreign(text(parts.get(2)?)?), leftovers: false }),
        _ => None,
    }
}

/// What a script found under a name, in words.
pub(super) fn foreign(what: &str) -> &'static str {
    match what {
        "type" => {
            "a value of another type stands under this key on the server; delete it, or use another key or namespace"
        }
        "expiry" => {
            "a value without an expiry stands under this key on the server, so it is no lease; delete it, or use another key or namespace"
        }
        _ => {
            "the fencing counter of this namespace is not a whole number below 2^53; restore it, or use another namespace"
        }
    }
}

/// Reads `<token> <fencing token> <host>/<pid> <function> <since>`.
pub(super) fn occupant(value: &str, left_millis: u64, now_micros: u64) -> Occupant {
    let retry_after = Some(Duration::from_millis(left_millis));
    let described = || {
        let mut words = value.split(' ').skip(1);
        let fencing_token = words.next()?.parse().ok();
        let (host, pid) = words.next()?.rsplit_once('/')?;
        let (function, since) = (words.next()?, words.next()?.parse::<u64>().ok()?);
        let held_for = Duration::from_micros(now_micros.saturating_sub(since));
        let since = UNIX_EPOCH.checked_add(Duration::from_micros(since))?;
        Some((Holder::new(host, pid.parse().ok()?, function, since, fencing_token), held_for))
    };
    match described() {
        Some((holder, held_for)) => Occupant { holder: Some(holder), retry_after, held_for: Some(held_for) },
        None => Occupant { holder: None, retry_after, held_for: None },
    }
}

pub(super) fn renewed(value: Value) -> Option<Vec<Renewed>> {
    answers(value, |answer| match answer {
        1 => Some(Renewed::Yes),
        0 => Some(Renewed::Absent),
        -1 => Some(Renewed::Stolen),
        _ => None,
    })
}

/// One answer may stand for all keys.
pub(super) fn released(value: Value, keys: usize) -> Option<Vec<Released>> {
    if value == Value::Int(1) {
        return Some(vec![Released::Deleted; keys]);
    }
    let released = answers(value, |answer| match answer {
        1 => Some(Released::Deleted),
        0 => Some(Released::Absent),
        -1 => Some(Released::Stolen),
        _ => None,
    });
    released.filter(|answers| answers.len() == keys)
}

/// The first fencing token may stand for those of all keys.
pub(super) fn fencing_tokens(value: Value, keys: usize) -> Option<Vec<u64>> {
    if let Value::Int(first) = value {
        let first = u64::try_from(first).ok()?;
        return (0..keys).map(|place| first.checked_add(u64::try_from(place).ok()?)).collect();
    }
    answers(value, |answer| u64::try_from(answer).ok()).filter(|tokens| tokens.len() == keys)
}

/// A number for each key.
pub(super) fn answers<T>(value: Value, read: impl Fn(i64) -> Option<T>) -> Option<Vec<T>> {
    let Value::Array(answers) = value else { return None };
    let read = |answer| match answer {
        Value::Int(number) => read(number),
        _ => None,
    };
    answers.into_iter().map(read).collect()
}

pub(super) fn number(value: &Value) -> Option<u64> {
    text(value)?.parse().ok()
}

pub(super) fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_read_back_and_a_foreign_value_is_not_guessed() {
        let value = "6f9619ff-8b86-4d01-b42d-00cf4fc964ff 17 web-1/42 shop::claim 1000000";
        let described = occupant(value, 1500, 3_000_000);
        let holder = described.holder.unwrap();
        assert_eq!((holder.host(), holder.pid(), holder.function()), ("web-1", 42, "shop::claim"));
        assert_eq!(holder.fencing_token(), Some(17));
        assert_eq!(described.held_for, Some(Duration::from_secs(2)));
        assert_eq!(described.retry_after, Some(Duration::from_millis(1500)));
        for foreign in ["", "x", "token", "a b c d e f", "1 2 /x f 3", "1 2 h/9 f 99999999999999999999999"] {
            assert!(occupant(foreign, 1, 1).holder.is_none(), "{foreign:?}");
        }
    }

    #[test]
    fn one_number_stands_for_all_keys_and_is_never_counted_beyond_what_there_is() {
        assert_eq!(fencing_tokens(Value::Int(7), 3), Some(vec![7, 8, 9]));
        assert_eq!(fencing_tokens(Value::Int(-1), 1), None);
        let last = u64::try_from(i64::MAX).unwrap();
        assert_eq!(fencing_tokens(Value::Int(i64::MAX), 2), Some(vec![last, last + 1]));
        assert_eq!(fencing_tokens(Value::Array(vec![Value::Int(7), Value::Int(0)]), 2), Some(vec![7, 0]));
        assert_eq!(fencing_tokens(Value::Array(vec![Value::Int(7)]), 2), None);
        assert_eq!(released(Value::Int(1), 2), Some(vec![Released::Deleted; 2]));
        assert_eq!(released(Value::Int(0), 1), None);
        assert_eq!(released(Value::Array(vec![Value::Int(1)]), 2), None);
    }
}

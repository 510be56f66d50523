//! Expiry: when a key goes, asked and set.

use super::{Call, Failure, Outcome, Spec, integer, is};
use crate::embedded::data::Bytes;
use crate::wire::Answer;

pub(super) const SPECS: &[Spec] = &[
    Spec::new("expire", -3, |call, parts| expire(call, parts, "expire", "ex")),
    Spec::new("pexpire", -3, |call, parts| expire(call, parts, "pexpire", "px")),
    Spec::new("expireat", -3, |call, parts| expire(call, parts, "expireat", "exat")),
    Spec::new("pexpireat", -3, |call, parts| expire(call, parts, "pexpireat", "pxat")),
    Spec::new("ttl", 2, |call, parts| Ok(left(call, &parts[1], |ms| (ms + 500) / 1000))),
    Spec::new("pttl", 2, |call, parts| Ok(left(call, &parts[1], |ms| ms))),
    Spec::new("pexpiretime", 2, |call, parts| {
        Ok(Answer::Int(match call.core.data.expires(&parts[1]) {
            Some(Some(expires)) => expires,
            Some(None) => -1,
            None => -2,
        }))
    }),
    Spec::new("persist", 2, |call, parts| {
        let expires = call.core.data.expires(&parts[1]).flatten().is_some();
        Ok(Answer::Int((expires && call.core.data.set_expires(&parts[1], None)).into()))
    }),
];

/// Reads an amount in a unit of `SET` (`ex`, `px`, `exat`, `pxat`), which must lie above zero, as a moment.
pub(super) fn moment(command: &str, unit: &str, amount: &[u8], now: i64) -> Result<i64, Failure> {
    let amount = integer(amount)?;
    if amount <= 0 {
        return Err(Failure::expire_time(command));
    }
    absolute(unit, amount, now).ok_or_else(|| Failure::expire_time(command))
}

/// The moment in milliseconds since the Unix epoch, unless it is too far away for the server.
fn absolute(unit: &str, amount: i64, now: i64) -> Option<i64> {
    let millis = if unit.starts_with('e') { amount.checked_mul(1000)? } else { amount };
    if unit.ends_with("at") { Some(millis) } else { millis.checked_add(now) }
}

fn expire(call: &mut Call<'_>, parts: &[Bytes], command: &str, unit: &str) -> Outcome {
    let (mut absent, mut present, mut later, mut earlier) = (false, false, false, false);
    for word in &parts[3..] {
        match word {
            _ if is(word, "nx") => absent = true,
            _ if is(word, "xx") => present = true,
            _ if is(word, "gt") => later = true,
            _ if is(word, "lt") => earlier = true,
            _ => return Err(Failure(format!("ERR Unsupported option {}", String::from_utf8_lossy(word)).into())),
        }
    }
    if absent && (present || later || earlier) {
        return Err(Failure::of("ERR NX and XX, GT or LT options at the same time are not compatible"));
    }
    if later && earlier {
        return Err(Failure::of("ERR GT and LT options at the same time are not compatible"));
    }
    let amount = integer(&parts[2])?;
    let data = &mut call.core.data;
    let expires = absolute(unit, amount, data.now()).ok_or_else(|| Failure::expire_time(command))?;
    let Some(old) = data.expires(&parts[1]) else { return Ok(Answer::Int(0)) };
    // A key that does not expire counts as expiring last of all.
    let refused = (absent && old.is_some())
        || (present && old.is_none())
        || (later && old.is_none_or(|old| expires <= old))
        || (earlier && old.is_some_and(|old| expires >= old));
    if refused {
        return Ok(Answer::Int(0));
    }
    if expires <= data.now() {
        data.remove(&parts[1]);
    } else {
        data.set_expires(&parts[1], Some(expires));
    }
    Ok(Answer::Int(1))
}

fn left(call: &mut Call<'_>, key: &Bytes, unit: impl FnOnce(i64) -> i64) -> Answer {
    let now = call.core.data.now();
    Answer::Int(match call.core.data.expires(key) {
        Some(Some(expires)) => unit((expires - now).max(0)),
        Some(None) => -1,
        None => -2,
    })
}

//! Strings: `GET`, `SET`, `INCR` and their kin.

use super::{Call, Failure, Outcome, Spec, expiry, integer, is};
use crate::embedded::data::{Bytes, Value};
use crate::wire::Answer;

pub(super) const SPECS: &[Spec] = &[
    Spec::new("get", 2, get),
    Spec::new("set", -3, set),
    Spec::new("incr", 2, |call, parts| add(call, &parts[1], 1)),
    Spec::new("decr", 2, |call, parts| add(call, &parts[1], -1)),
    Spec::new("incrby", 3, |call, parts| add(call, &parts[1], integer(&parts[2])?)),
    Spec::new("strlen", 2, |call, parts| {
        Ok(Answer::count(call.core.data.read::<Bytes>(&parts[1])?.map_or(0, Vec::len)))
    }),
];

fn get(call: &mut Call<'_>, parts: &[Bytes]) -> Outcome {
    Ok(Answer::optional(call.core.data.read::<Bytes>(&parts[1])?.cloned()))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
    Absent,
    Present,
}

#[derive(Clone, Copy)]
enum Expiry {
    Keep,
    At(i64),
}

fn set(call: &mut Call<'_>, parts: &[Bytes]) -> Outcome {
    let (mut condition, mut gives_old) = (None, false);
    let mut expiry: Option<(&str, &[u8])> = None;
    let mut words = parts[3..].iter();
    while let Some(word) = words.next() {
        let unit = ["ex", "px", "exat", "pxat"].into_iter().find(|unit| is(word, unit));
        // One way to say it; the last of several amounts counts.
        let fits = |name: &str| expiry.is_none_or(|(known, _)| known == name);
        if let Some(unit) = unit.filter(|unit| fits(unit)) {
            let amount = words.next().ok_or(Failure::SYNTAX)?;
            expiry = Some((unit, amount.as_slice()));
        } else if is(word, "keepttl") && fits("keepttl") {
            expiry = Some(("keepttl", &[]));
        } else if is(word, "nx") && condition != Some(Condition::Present) {
            condition = Some(Condition::Absent);
        } else if is(word, "xx") && condition != Some(Condition::Absent) {
            condition = Some(Condition::Present);
        } else if is(word, "get") {
            gives_old = true;
        } else {
            return Err(Failure::SYNTAX);
        }
    }
    let now = call.core.data.now();
    let expiry = match expiry {
        Some(("keepttl", _)) => Some(Expiry::Keep),
        Some((unit, amount)) => Some(Expiry::At(expiry::moment("set", unit, amount, now)?)),
        None => None,
    };

    let (data, key) = (&mut call.core.data, &parts[1]);
    let old = if gives_old { Some(data.read::<Bytes>(key)?.cloned()) } else { None };
    let exists = data.exists(key);
    let done = condition.is_none_or(|condition| exists == (condition == Condition::Present));
    if done {
        let expires = match expiry {
            Some(Expiry::At(moment)) => Some(moment),
            Some(Expiry::Keep) => data.expires(key).flatten(),
            None => None,
        };
        data.set(key, Value::Text(parts[2].clone()), expires);
    }
    Ok(match old {
        Some(old) => Answer::optional(old),
        None if done => Answer::OK,
        None => Answer::Nil,
    })
}

fn add(call: &mut Call<'_>, key: &Bytes, by: i64) -> Outcome {
    let data = &mut call.core.data;
    let old = data.read::<Bytes>(key)?.map_or(Ok(0), |text| integer(text))?;
    let new = old.checked_add(by).ok_or(Failure::of("ERR increment or decrement would overflow"))?;
    let expires = data.expires(key).flatten();
    data.set(key, Value::Text(new.to_string().into_bytes()), expires);
    Ok(Answer::Int(new))
}

//! Keys of any type: whether they are there, which there are, and away with them.

use super::{Call, Failure, Outcome, Spec, is};
use crate::embedded::data::{Bytes, Value};
use crate::embedded::glob;
use crate::wire::Answer;

pub(super) const SPECS: &[Spec] = &[
    Spec::new("del", -2, remove),
    Spec::new("unlink", -2, remove),
    Spec::new("exists", -2, |call, parts| {
        Ok(Answer::count(parts[1..].iter().filter(|key| call.core.data.exists(key)).count()))
    }),
    Spec::new("type", 2, |call, parts| {
        Ok(Answer::Status(call.core.data.value(&parts[1]).map_or("none", Value::kind).into()))
    }),
    Spec::new("keys", 2, |call, parts| {
        let fitting = call.core.data.keys().filter(|key| glob::fits(&parts[1], key));
        Ok(Answer::List(fitting.map(Answer::bulk).collect()))
    }),
    Spec::new("dbsize", 1, |call, _| Ok(Answer::count(call.core.data.keys().count()))),
    Spec::new("flushall", -1, flush),
    Spec::new("flushdb", -1, flush),
];

fn remove(call: &mut Call<'_>, parts: &[Bytes]) -> Outcome {
    Ok(Answer::count(parts[1..].iter().filter(|key| call.core.data.remove(key)).count()))
}

fn flush(call: &mut Call<'_>, parts: &[Bytes]) -> Outcome {
    if parts.len() > 2 || parts.get(1).is_some_and(|how| !is(how, "async") && !is(how, "sync")) {
        return Err(Failure::SYNTAX);
    }
    call.core.data.clear();
    Ok(Answer::OK)
}

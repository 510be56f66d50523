//! Lists.

use super::{Call, Failure, Outcome, Spec, integer, range};
use crate::embedded::data::{Bytes, List};
use crate::wire::Answer;

pub(super) const SPECS: &[Spec] = &[
    Spec::new("lpush", -3, |call, parts| push(call, parts, List::push_front)),
    Spec::new("rpush", -3, |call, parts| push(call, parts, List::push_back)),
    Spec::new("lpop", -2, |call, parts| pop(call, parts, List::pop_front)),
    Spec::new("rpop", -2, |call, parts| pop(call, parts, List::pop_back)),
    Spec::new("llen", 2, |call, parts| Ok(Answer::count(call.core.data.read::<List>(&parts[1])?.map_or(0, List::len)))),
    Spec::new("lrange", 4, |call, parts| {
        let (start, end) = (integer(&parts[2])?, integer(&parts[3])?);
        let list = call.core.data.read::<List>(&parts[1])?;
        Ok(Answer::List(
            list.map_or_else(Vec::new, |list| list.range(range(start, end, list.len())).map(Answer::bulk).collect()),
        ))
    }),
    Spec::new("lrem", 4, remove),
];

fn push(call: &mut Call<'_>, parts: &[Bytes], push: fn(&mut List, Bytes)) -> Outcome {
    let length = call.core.data.make::<List, _>(&parts[1], |list| {
        parts[2..].iter().for_each(|element| push(list, element.clone()));
        list.len()
    })?;
    Ok(Answer::count(length))
}

fn pop(call: &mut Call<'_>, parts: &[Bytes], pop: fn(&mut List) -> Option<Bytes>) -> Outcome {
    let data = &mut call.core.data;
    match parts {
        [_, key] => Ok(Answer::optional(data.change::<List, _>(key, pop)?.flatten())),
        [_, key, count] => {
            const NO_COUNT: Failure = Failure::of("ERR value is out of range, must be positive");
            let count = integer(count).ok().and_then(|count| usize::try_from(count).ok()).ok_or(NO_COUNT)?;
            let popped = data.change::<List, _>(key, |list| {
                (0..count).map_while(|_| pop(list)).map(Answer::Bulk).collect::<Vec<_>>()
            })?;
            Ok(popped.map_or(Answer::NilList, Answer::List))
        }
        _ => Err(Failure::arity(&String::from_utf8_lossy(&parts[0]).to_ascii_lowercase())),
    }
}

fn remove(call: &mut Call<'_>, parts: &[Bytes]) -> Outcome {
    let count = integer(&parts[2])?;
    let removed = call.core.data.change::<List, _>(&parts[1], |list| {
        // All for zero; from the back for a negative count.
        let mut left = if count == 0 { u64::MAX } else { count.unsigned_abs() };
        let mut removed = 0;
        let mut keep = |element: &Bytes| {
            let goes = *element == parts[3] && left > 0;
            left -= u64::from(goes);
            removed += i64::from(goes);
            !goes
        };
        if count < 0 {
            let mut kept: List = std::mem::take(list).into_iter().rev().filter(|element| keep(element)).collect();
            kept.make_contiguous().reverse();
            *list = kept;
        } else {
            list.retain(keep);
        }
        removed
    })?;
    Ok(Answer::Int(removed.unwrap_or(0)))
}

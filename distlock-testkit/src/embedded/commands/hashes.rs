//! Hashes.

use super::{Call, Failure, Outcome, Spec};
use crate::embedded::data::{Bytes, Hash};
use crate::wire::Answer;

pub(super) const SPECS: &[Spec] = &[
    Spec::new("hset", -4, set),
    Spec::new("hget", 3, |call, parts| {
        Ok(Answer::optional(hash(call, parts)?.and_then(|hash| hash.get(&parts[2])).cloned()))
    }),
    Spec::new("hmget", -3, |call, parts| {
        let hash = hash(call, parts)?;
        let values = parts[2..].iter().map(|field| Answer::optional(hash.and_then(|hash| hash.get(field)).cloned()));
        Ok(Answer::List(values.collect()))
    }),
    Spec::new("hexists", 3, |call, parts| {
        Ok(Answer::Int(hash(call, parts)?.is_some_and(|hash| hash.get(&parts[2]).is_some()).into()))
    }),
    Spec::new("hlen", 2, |call, parts| Ok(Answer::count(hash(call, parts)?.map_or(0, |hash| hash.fields.len())))),
    Spec::new("hgetall", 2, |call, parts| {
        let fields = hash(call, parts)?.map(|hash| hash.fields.as_slice()).unwrap_or_default();
        Ok(Answer::Map(fields.iter().map(|(field, value)| (Answer::bulk(field), Answer::bulk(value))).collect()))
    }),
    Spec::new("hkeys", 2, |call, parts| {
        let fields = hash(call, parts)?.map(|hash| hash.fields.as_slice()).unwrap_or_default();
        Ok(Answer::List(fields.iter().map(|(field, _)| Answer::bulk(field)).collect()))
    }),
    Spec::new("hdel", -3, |call, parts| {
        let remove = |hash: &mut Hash| parts[2..].iter().filter(|field| hash.remove(field)).count();
        Ok(Answer::count(call.core.data.change(&parts[1], remove)?.unwrap_or(0)))
    }),
];

fn hash<'a>(call: &'a mut Call<'_>, parts: &[Bytes]) -> Result<Option<&'a Hash>, Failure> {
    call.core.data.read(&parts[1])
}

fn set(call: &mut Call<'_>, parts: &[Bytes]) -> Outcome {
    let pairs = &parts[2..];
    if !pairs.len().is_multiple_of(2) {
        return Err(Failure::arity("hset"));
    }
    let added = call.core.data.make::<Hash, _>(&parts[1], |hash| {
        pairs.chunks_exact(2).filter(|pair| hash.set(&pair[0], pair[1].clone())).count()
    })?;
    Ok(Answer::count(added))
}

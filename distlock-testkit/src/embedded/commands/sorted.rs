//! Sorted sets.

use super::{Call, Failure, Outcome, Spec, float, integer, is, range};
use crate::embedded::data::{Bytes, Sorted};
use crate::wire::Answer;

pub(super) const SPECS: &[Spec] = &[
    Spec::new("zadd", -4, add),
    Spec::new("zrem", -3, |call, parts| {
        let remove = |sorted: &mut Sorted| parts[2..].iter().filter(|member| sorted.remove(member)).count();
        Ok(Answer::count(call.core.data.change(&parts[1], remove)?.unwrap_or(0)))
    }),
    Spec::new("zcard", 2, |call, parts| Ok(Answer::count(sorted(call, parts)?.map_or(0, Sorted::len)))),
    Spec::new("zscore", 3, |call, parts| {
        let score = sorted(call, parts)?.and_then(|sorted| sorted.score(&parts[2]));
        Ok(score.map_or(Answer::Nil, Answer::Double))
    }),
    Spec::new("zrank", 3, |call, parts| {
        let rank = sorted(call, parts)?.and_then(|sorted| sorted.iter().position(|(member, _)| *member == parts[2]));
        Ok(rank.map_or(Answer::Nil, Answer::count))
    }),
    Spec::new("zcount", 4, |call, parts| {
        let bounds = Bounds::read(&parts[2], &parts[3])?;
        let count = sorted(call, parts)?.map(|sorted| sorted.iter().filter(|(_, score)| bounds.hold(*score)).count());
        Ok(Answer::count(count.unwrap_or(0)))
    }),
    Spec::new("zrange", -4, select),
    Spec::new("zrangebyscore", -4, |call, parts| select_by_score(call, parts, &parts[4..])),
    Spec::new("zremrangebyscore", 4, |call, parts| {
        let bounds = Bounds::read(&parts[2], &parts[3])?;
        let removed = call.core.data.change(&parts[1], |sorted: &mut Sorted| {
            let going: Vec<Bytes> =
                sorted.iter().filter(|(_, score)| bounds.hold(*score)).map(|(member, _)| member.clone()).collect();
            going.iter().filter(|member| sorted.remove(member)).count()
        })?;
        Ok(Answer::count(removed.unwrap_or(0)))
    }),
];

fn sorted<'a>(call: &'a mut Call<'_>, parts: &[Bytes]) -> Result<Option<&'a Sorted>, Failure> {
    call.core.data.read(&parts[1])
}

/// Two scores, each with or without itself, as in `(1` and `+inf`.
struct Bounds {
    from: (f64, bool),
    to: (f64, bool),
}

impl Bounds {
    fn read(from: &[u8], to: &[u8]) -> Result<Self, Failure> {
        let bound = |part: &[u8]| match part.strip_prefix(b"(") {
            Some(rest) => float(rest).map(|score| (score, false)),
            None => float(part).map(|score| (score, true)),
        };
        match (bound(from), bound(to)) {
            (Some(from), Some(to)) => Ok(Self { from, to }),
            _ => Err(Failure::of("ERR min or max is not a float")),
        }
    }

    fn hold(&self, score: f64) -> bool {
        let above = score > self.from.0 || (self.from.1 && score == self.from.0);
        let below = score < self.to.0 || (self.to.1 && score == self.to.0);
        above && below
    }
}

fn add(call: &mut Call<'_>, parts: &[Bytes]) -> Outcome {
    let (mut absent, mut present, mut greater, mut less, mut changed) = (false, false, false, false, false);
    let mut at = 2;
    while let Some(word) = parts.get(at) {
        match word {
            _ if is(word, "nx") => absent = true,
            _ if is(word, "xx") => present = true,
            _ if is(word, "gt") => greater = true,
            _ if is(word, "lt") => less = true,
            _ if is(word, "ch") => changed = true,
            _ => break,
        }
        at += 1;
    }
    let pairs = &parts[at..];
    if pairs.is_empty() || !pairs.len().is_multiple_of(2) {
        return Err(Failure::SYNTAX);
    }
    if absent && present {
        return Err(Failure::of("ERR XX and NX options at the same time are not compatible"));
    }
    if (greater && (absent || less)) || (less && absent) {
        return Err(Failure::of("ERR GT, LT, and/or NX options at the same time are not compatible"));
    }
    let scores = pairs.chunks_exact(2).map(|pair| float(&pair[0]).map(|score| (score, &pair[1])));
    let scores = scores.collect::<Option<Vec<_>>>().ok_or(Failure::NO_FLOAT)?;
    let (added, updated) = call.core.data.make::<Sorted, _>(&parts[1], |sorted| {
        let (mut added, mut updated) = (0, 0);
        for (score, member) in scores {
            let old = sorted.score(member);
            let refused = match old {
                Some(old) => absent || (greater && score <= old) || (less && score >= old),
                None => present,
            };
            if refused {
                continue;
            }
            added += i64::from(old.is_none());
            updated += i64::from(old.is_some_and(|old| old != score));
            sorted.set(member, score);
        }
        (added, updated)
    })?;
    // With XX nothing may have come into being.
    call.core.data.change::<Sorted, _>(&parts[1], |_| ())?;
    Ok(Answer::Int(if changed { added + updated } else { added }))
}

fn select(call: &mut Call<'_>, parts: &[Bytes]) -> Outcome {
    let (mut by_score, mut reversed, mut options) = (false, false, Vec::new());
    for word in &parts[4..] {
        match word {
            _ if is(word, "byscore") => by_score = true,
            _ if is(word, "rev") => reversed = true,
            _ => options.push(word.clone()),
        }
    }
    if by_score {
        if reversed {
            return Err(Failure::of("ERR this server does not know REV with BYSCORE; sort the answer instead"));
        }
        return select_by_score(call, parts, &options);
    }
    let with_scores = match options.as_slice() {
        [] => false,
        [word] if is(word, "withscores") => true,
        [word, _, _] | [word, _, _, _] if is(word, "limit") => {
            return Err(Failure::of(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
            ));
        }
        _ => return Err(Failure::SYNTAX),
    };
    let (start, end) = (integer(&parts[2])?, integer(&parts[3])?);
    let Some(sorted) = sorted(call, parts)? else { return Ok(Answer::List(Vec::new())) };
    let range = range(start, end, sorted.len());
    let (skip, take) = (range.start, range.len());
    Ok(if reversed {
        shown(sorted.iter().rev().skip(skip).take(take), with_scores)
    } else {
        shown(sorted.iter().skip(skip).take(take), with_scores)
    })
}

/// With `WITHSCORES` and `LIMIT offset count` among the options.
fn select_by_score(call: &mut Call<'_>, parts: &[Bytes], options: &[Bytes]) -> Outcome {
    let (mut with_scores, mut skip, mut take) = (false, 0, usize::MAX);
    let mut words = options.iter();
    while let Some(word) = words.next() {
        if is(word, "withscores") {
            with_scores = true;
        } else if is(word, "limit") {
            let (Some(offset), Some(count)) = (words.next(), words.next()) else { return Err(Failure::SYNTAX) };
            // A negative offset gives nothing, a negative count everything.
            skip = usize::try_from(integer(offset)?).unwrap_or(usize::MAX);
            take = usize::try_from(integer(count)?).unwrap_or(usize::MAX);
        } else {
            return Err(Failure::SYNTAX);
        }
    }
    let bounds = Bounds::read(&parts[2], &parts[3])?;
    let Some(sorted) = sorted(call, parts)? else { return Ok(Answer::List(Vec::new())) };
    Ok(shown(sorted.iter().filter(|(_, score)| bounds.hold(*score)).skip(skip).take(take), with_scores))
}

fn shown<'a>(members: impl Iterator<Item = (&'a Bytes, f64)>, with_scores: bool) -> Answer {
    if with_scores {
        Answer::Scored(members.map(|(member, score)| (member.clone(), score)).collect())
    } else {
        Answer::List(members.map(|(member, _)| Answer::bulk(member)).collect())
    }
}

//! Running scripts and the cache of their sources. What happens inside of a script is in `script.rs`.

use super::{Call, Failure, Outcome, Spec, integer, is};
use crate::embedded::data::Bytes;
use crate::embedded::script::{Engine, Script};
use crate::fault::sha1;
use crate::wire::Answer;

pub(super) const SPECS: &[Spec] = &[
    Spec::outside("eval", -3, |call, parts| {
        // Comparing is faster than hashing, and most scripts come again.
        let known = call.core.scripts.iter().find(|(_, source)| **source == parts[1]);
        let sha = known.map_or_else(|| sha1(&parts[1]), |(sha, _)| sha.clone());
        run(call, &sha, Some(&parts[1]), &parts[2..])
    }),
    Spec::outside("evalsha", -3, |call, parts| {
        let sha = String::from_utf8_lossy(&parts[1]).to_ascii_lowercase();
        run(call, &sha, None, &parts[2..])
    }),
    Spec::outside("script", -2, script),
];

const NO_SCRIPT: Failure = Failure::of("NOSCRIPT No matching script. Please use EVAL.");

fn run(call: &mut Call<'_>, sha: &str, source: Option<&Bytes>, rest: &[Bytes]) -> Outcome {
    let (count, rest) = (integer(&rest[0])?, &rest[1..]);
    if count > i64::try_from(rest.len()).unwrap_or(i64::MAX) {
        return Err(Failure::of("ERR Number of keys can't be greater than number of args"));
    }
    let count = usize::try_from(count).map_err(|_| Failure::of("ERR Number of keys can't be negative"))?;
    let source = match (source, call.core.scripts.get(sha)) {
        (_, Some(known)) => known.clone(),
        (Some(new), None) => new.clone(),
        (None, None) => return Err(NO_SCRIPT),
    };
    // Taken out, for the script's own commands need the rest of the server.
    let Some(mut engine) = call.core.engine.take() else {
        return Err(Failure::of("ERR a script runs already"));
    };
    let (keys, arguments) = rest.split_at(count);
    let script = Script { sha, source: &source, keys, arguments };
    let answer = engine.run(call.core, call.client, &script);
    call.core.engine = Some(engine);
    let answer = answer?;
    // Only what could be compiled is kept.
    call.core.scripts.entry(sha.to_owned()).or_insert(source);
    Ok(answer)
}

fn script(call: &mut Call<'_>, parts: &[Bytes]) -> Outcome {
    match (&parts[1], &parts[2..]) {
        (name, shas @ [_, ..]) if is(name, "exists") => {
            let known = |sha: &Bytes| {
                let sha = String::from_utf8_lossy(sha).to_ascii_lowercase();
                Answer::Int(call.core.scripts.contains_key(&sha).into())
            };
            Ok(Answer::List(shas.iter().map(known).collect()))
        }
        (name, [source]) if is(name, "load") => {
            Engine::check(call.core.engine.as_mut(), source)?;
            let sha = sha1(source);
            call.core.scripts.insert(sha.clone(), source.clone());
            Ok(Answer::bulk(sha))
        }
        (name, []) if is(name, "flush") => flush(call),
        (name, [how]) if is(name, "flush") => {
            if !is(how, "async") && !is(how, "sync") {
                return Err(Failure::of("ERR SCRIPT FLUSH only support SYNC|ASYNC option"));
            }
            flush(call)
        }
        (name, _) => {
            let known = ["exists", "load", "flush"].into_iter().find(|it| is(name, it));
            Err(match known {
                Some(known) => Failure::arity(&format!("script|{known}")),
                None => Failure::subcommand("SCRIPT", name),
            })
        }
    }
}

fn flush(call: &mut Call<'_>) -> Outcome {
    call.core.scripts.clear();
    if let Some(engine) = &mut call.core.engine {
        engine.forget();
    }
    Ok(Answer::OK)
}

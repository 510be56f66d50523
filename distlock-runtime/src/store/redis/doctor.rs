//! Looking at one server for the doctor: what it tells of itself, what this user may do, and what its clock shows.
//!
//! On the front connection, in one trip where nothing is to be looked at twice. Nothing of it is needed for locking, so a
//! refusal is a fact like any other.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use redis::{Pipeline, Value};

use super::connection::{Answer, Connection};
use super::listening::Listening;
use super::permissions::{CHANNELS, Probe, probes, refusal, writing_probe};
use super::replies::text;
use crate::store::StoreError;
use crate::store::facts::{Info, Look, Memory, NodeFacts, Reading, Refused, Seen};

/// Between two looks at a clock: long beside a round trip, so that a rate is to be seen, and short for who waits.
const CLOCK_LOOK: Duration = Duration::from_millis(250);

/// The first reading of each server's clock, with the server's run, for a look long after.
pub(super) type FirstReading = Mutex<Option<(String, Reading)>>;

pub(super) async fn look_at(
    connection: &Connection,
    first_reading: &FirstReading,
    look: &Look,
    limit: Duration,
) -> NodeFacts {
    let seen = see(connection, first_reading, look, limit).await;
    NodeFacts { address: connection.place(), quarantine: None, seen }
}

async fn see(
    connection: &Connection,
    first_reading: &FirstReading,
    look: &Look,
    limit: Duration,
) -> Result<Seen, StoreError> {
    connection.ready(limit).await?;
    let mut seen = Seen::default();
    read_clock(connection, look, limit, &mut seen).await?;

    let channel = CHANNELS.replace('*', "doctor");
    let own = (look.plain.clone(), look.tagged.clone());
    let namespaces = std::iter::once(&own).chain(look.others.iter());
    let probes: Vec<Probe> = namespaces
        .flat_map(|(plain, tagged)| {
            let plain = plain.first();
            let namespace = plain.wire.strip_suffix(&format!(":{}", plain.key)).unwrap_or_default();
            probes(namespace, plain, tagged.first(), &channel, look.wanted)
        })
        .collect();
    let mut pipeline = Pipeline::new();
    pipeline.cmd("INFO");
    if let Some(epoch) = &look.epoch {
        pipeline.cmd("GET").arg(&**epoch);
    }
    probes.iter().for_each(|probe| probe.add_to(&mut pipeline));
    let answers = connection.send_each(&pipeline, limit).await?;
    let (info, mut answers) = answers.split_first().ok_or_else(|| super::garbled("doctor's"))?;
    match info.as_ref().ok().and_then(text) {
        Some(text) => seen.info = Some(Info::read(text)),
        // The scripts ask for the server's run.
        None if look.epoch.is_some() => add(&mut seen.refused, Refused::Run),
        None => add(&mut seen.refused, Refused::Info),
    }
    if look.epoch.is_some() {
        let (epoch, rest) = answers.split_first().ok_or_else(|| super::garbled("doctor's"))?;
        answers = rest;
        let run_id = seen.info.as_ref().map_or("", |info| &info.run_id);
        seen.memory = epoch.as_ref().ok().map(|epoch| memory(epoch, run_id));
    }
    let denied = |(probe, answer): (&Probe, &Answer)| probe.refused(answer);
    probes.iter().zip(answers).filter_map(denied).for_each(|refused| add(&mut seen.refused, refused));
    remember(first_reading, &mut seen);
    if look.thorough {
        try_writing(connection, look, limit, &mut seen.refused).await?;
        // The nodes of a cluster are listened to on other connections, in another way, which was tried above.
        if !look.wanted.cluster && connection.listen(limit).await == Listening::Refused {
            listening_refused(connection, limit, &mut seen.refused).await;
        }
        tokio::time::sleep(CLOCK_LOOK).await;
        read_clock(connection, look, limit, &mut seen).await?;
    }
    Ok(seen)
}

/// `HSET` leaves something behind, so it is tried only where that can be taken away again.
async fn try_writing(
    connection: &Connection,
    look: &Look,
    limit: Duration,
    refused: &mut Vec<Refused>,
) -> Result<(), StoreError> {
    let may = |command| !refused.contains(&Refused::Command(command));
    if refused.iter().any(|refused| matches!(refused, Refused::Keys(_))) || !(may("DEL") || may("PEXPIRE")) {
        return Ok(());
    }
    let (probe, undo) = writing_probe(look.plain.first(), may("DEL"));
    let mut pipeline = Pipeline::new();
    probe.add_to(&mut pipeline);
    pipeline.add_command(undo);
    let answers = connection.send_each(&pipeline, limit).await?;
    if let Some(denied) = answers.first().and_then(|answer| probe.refused(answer)) {
        add(refused, denied);
    }
    Ok(())
}

/// Why the process's own channel is refused: the command, or the channel.
async fn listening_refused(connection: &Connection, limit: Duration, refused: &mut Vec<Refused>) {
    let mut pipeline = Pipeline::new();
    pipeline.cmd("SUBSCRIBE").arg(CHANNELS.replace('*', "doctor"));
    let answers = connection.send_each(&pipeline, limit).await.unwrap_or_default();
    let denied = answers.first().and_then(|answer| refusal(answer, "SUBSCRIBE", None));
    add(refused, denied.unwrap_or(Refused::Unknown("SUBSCRIBE")));
}

async fn read_clock(connection: &Connection, look: &Look, limit: Duration, seen: &mut Seen) -> Result<(), StoreError> {
    let mut pipeline = Pipeline::new();
    pipeline.cmd("TIME");
    let asked_at = look.clock.now();
    let answers = connection.send_each(&pipeline, limit).await?;
    let took = look.clock.now().since(asked_at);
    let shown = || {
        let Ok(Value::Array(parts)) = answers.first()? else { return None };
        let number = |place: usize| text(parts.get(place)?)?.parse::<u64>().ok();
        Some(Duration::from_secs(number(0)?).saturating_add(Duration::from_micros(number(1)?)))
    };
    seen.clock.extend(shown().map(|shown| Reading { asked_at, took, shown }));
    Ok(())
}

/// What the epoch key says to a run of the server; see `epoch.lua`.
fn memory(epoch: &Value, run_id: &str) -> Memory {
    let since = || {
        let mut words = text(epoch)?.split(' ');
        let (micros, run) = (words.next()?, words.next()?);
        (run_id.is_empty() || run == run_id).then(|| micros.parse().ok())?
    };
    since().map_or(Memory::Lost, |micros| Memory::Since(Duration::from_micros(micros)))
}

/// Finds the first reading of this run of the server, or makes this the first one.
fn remember(first_reading: &FirstReading, seen: &mut Seen) {
    let Some(run_id) = seen.info.as_ref().map(|info| &info.run_id).filter(|run_id| !run_id.is_empty()) else { return };
    let mut first = first_reading.lock().unwrap_or_else(PoisonError::into_inner);
    match &*first {
        Some((known, reading)) if known == run_id => seen.first = Some(*reading),
        _ => *first = seen.clock.first().map(|reading| (run_id.clone(), *reading)),
    }
}

fn add(refused: &mut Vec<Refused>, more: Refused) {
    if !refused.contains(&more) {
        refused.push(more);
    }
}

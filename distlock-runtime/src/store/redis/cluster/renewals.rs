//! Renewals: what belongs to one node leaves in one packet, a script for each slot.
//!
//! Most leases are alone in their slots, so a script for each would be a command for each. In a packet they cost the process
//! no more than a script for all. A slot whose node sends its script elsewhere is looked for by itself; from then on it
//! is renewed by itself for a while, so that it cannot spoil the answers for others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use redis::Pipeline;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::detour::{Detour, Leg, Way};
use super::topology::{Node, Topology};
use crate::slot::slot_of;
use crate::store::redis::answers::Refusal;
use crate::store::redis::scripts::{Form, RENEW};
use crate::store::redis::{fill_renewal, garbled, renewed};
use crate::store::{BoxFuture, Lane, Renewal, Renewed, StoreError};

/// The renewals of one slot, and where they stand in the batch.
#[derive(Debug, Default)]
struct Part {
    places: Vec<usize>,
    renewals: Vec<Renewal>,
}

/// Renews a batch, whose answers stand in its order.
pub(super) async fn renew(
    topology: &Arc<Topology>,
    batch: &[Renewal],
    lane: Lane,
    limit: Duration,
) -> Result<Vec<Renewed>, StoreError> {
    let begun = Instant::now();
    let left = || limit.saturating_sub(begun.elapsed());
    let mut parts: BTreeMap<u16, Part> = BTreeMap::new();
    for (place, renewal) in batch.iter().enumerate() {
        let part = parts.entry(slot_of(&renewal.wire)).or_default();
        part.places.push(place);
        part.renewals.push(renewal.clone());
    }
    if parts.len() == 1 {
        return renew_in_slot(topology, batch, lane, limit).await;
    }
    // The engine makes batches by the node, so there is one packet; two if the map has changed since.
    let mut packets: Vec<(Node, Vec<Part>)> = Vec::new();
    for (slot, part) in parts {
        let node = topology.node_of(slot, lane, left()).await?;
        match packets.iter_mut().find(|(other, _)| Arc::ptr_eq(other, &node)) {
            Some((_, parts)) => parts.push(part),
            None => packets.push((node, vec![part])),
        }
    }
    let mut answers = vec![None; batch.len()];
    let mut astray = JoinSet::new();
    for (node, parts) in packets {
        for (part, answer) in send(topology, &node, parts, lane, left()).await? {
            match answer {
                Some(own) => part.places.iter().zip(own).for_each(|(place, answer)| answers[*place] = Some(answer)),
                None => drop(astray.spawn(find(topology.clone(), part, lane, left()))),
            }
        }
    }
    while let Some(found) = astray.join_next().await {
        let (part, answer) = found.map_err(|_| runtime_ended())?;
        part.places.iter().zip(answer?).for_each(|(place, answer)| answers[*place] = Some(answer));
    }
    answers.into_iter().collect::<Option<_>>().ok_or_else(|| garbled("renew"))
}

/// Sends one packet. `None` for a part that the node does not have, or not now.
async fn send(
    topology: &Arc<Topology>,
    node: &Node,
    parts: Vec<Part>,
    lane: Lane,
    limit: Duration,
) -> Result<Vec<(Part, Option<Vec<Renewed>>)>, StoreError> {
    let begun = Instant::now();
    let mut unanswered = parts;
    let mut answered = Vec::with_capacity(unanswered.len());
    // Once more if the node does not know the script: the first of the packet brings it then.
    for whole in [false, true] {
        let mut packet = Pipeline::with_capacity(unanswered.len());
        for (place, Part { renewals, .. }) in unanswered.iter().enumerate() {
            let (keys, fill) = (renewals.len(), fill_renewal(renewals));
            packet.add_command(if whole && place == 0 { RENEW.whole(keys, fill) } else { RENEW.known(keys, fill) });
        }
        let left = limit.saturating_sub(begun.elapsed());
        let answers = node.store.connection(lane).send_each(&packet, unanswered.len(), left).await;
        let answers = answers.inspect_err(|_| topology.suspect(node))?;
        let mut unknown = Vec::new();
        for (part, answer) in unanswered.into_iter().zip(answers) {
            match answer {
                Ok(value) => {
                    let own = renewed(value).filter(|own| own.len() == part.renewals.len());
                    answered.push((part, Some(own.ok_or_else(|| garbled("renew"))?)));
                }
                Err(Refusal::NoScript) if !whole => unknown.push(part),
                Err(Refusal::NoScript) => answered.push((part, None)),
                Err(Refusal::Failed(error)) if error.detour.is_some() => answered.push((part, None)),
                Err(Refusal::Failed(error)) => return Err(error),
            }
        }
        unanswered = unknown;
        if unanswered.is_empty() {
            break;
        }
    }
    Ok(answered)
}

/// Renews a part that was not where it was looked for.
async fn find(
    topology: Arc<Topology>,
    part: Part,
    lane: Lane,
    limit: Duration,
) -> (Part, Result<Vec<Renewed>, StoreError>) {
    let answer = renew_in_slot(&topology, &part.renewals, lane, limit).await;
    (part, answer)
}

/// Renews keys of one slot. While the slot is on its way, the node that has it refuses keys that are partly here and partly
/// there; each by itself, they are found.
async fn renew_in_slot(
    topology: &Arc<Topology>,
    renewals: &[Renewal],
    lane: Lane,
    limit: Duration,
) -> Result<Vec<Renewed>, StoreError> {
    let begun = Instant::now();
    let Some(first) = renewals.first() else { return Ok(Vec::new()) };
    let slot = slot_of(&first.wire);
    let mut way = Way::new(topology, slot, lane, limit);
    loop {
        let leg = way.next().await?;
        let Leg { node, asking, limit: left } = &leg;
        let form = if *asking { Form::Asking } else { Form::Known };
        let error = match node.store.renew_here(renewals, form, lane, *left).await {
            Ok(answers) => return Ok(answers),
            Err(error) => error,
        };
        if error.detour.is_some() {
            topology.note_trouble(slot);
        }
        if renewals.len() > 1 && matches!(error.detour.as_deref(), Some(Detour::TryAgain)) {
            return renew_each(topology, renewals, lane, limit.saturating_sub(begun.elapsed())).await;
        }
        way.turn(&leg, error).await?;
    }
}

/// Renews each key by itself, all at the same time.
async fn renew_each(
    topology: &Arc<Topology>,
    renewals: &[Renewal],
    lane: Lane,
    limit: Duration,
) -> Result<Vec<Renewed>, StoreError> {
    let mut sent = JoinSet::new();
    for (place, renewal) in renewals.iter().enumerate() {
        sent.spawn(renew_one(topology.clone(), renewal.clone(), place, lane, limit));
    }
    let mut answers = vec![None; renewals.len()];
    while let Some(ended) = sent.join_next().await {
        let (place, answer) = ended.map_err(|_| runtime_ended())?;
        answers[place] = answer?.pop();
    }
    answers.into_iter().collect::<Option<_>>().ok_or_else(|| garbled("renew"))
}

/// [`renew_in_slot`] for a single key, as a future that it can start itself.
fn renew_one(
    topology: Arc<Topology>,
    renewal: Renewal,
    place: usize,
    lane: Lane,
    limit: Duration,
) -> BoxFuture<'static, (usize, Result<Vec<Renewed>, StoreError>)> {
    Box::pin(async move {
        let answer = renew_in_slot(&topology, std::slice::from_ref(&renewal), lane, limit).await;
        (place, answer)
    })
}

fn runtime_ended() -> StoreError {
    StoreError::unanswered("the runtime that asked the cluster has ended")
}

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
    let mut failed = Failed::default();
    for (slot, part) in parts {
        let node = match topology.node_of(slot, lane, left()).await {
            Ok(node) => node,
            Err(error) => {
                failed.note(error)?;
                continue;
            }
        };
        match packets.iter_mut().find(|(other, _)| Arc::ptr_eq(other, &node)) {
            Some((_, parts)) => parts.push(part),
            None => packets.push((node, vec![part])),
        }
    }
    let mut answers = vec![None; batch.len()];
    let mut astray = JoinSet::new();
    for (node, parts) in packets {
        let answered = match send(topology, &node, parts, lane, topology.own_share(left())).await {
            Ok(answered) => answered,
            Err(error) => {
                failed.note(error)?;
                continue;
            }
        };
        for (part, answer) in acknowledge(&node, answered, lane, left()).await {
            match answer {
                Sent::Answered(own) => {
                    part.places.iter().zip(own).for_each(|(place, answer)| answers[*place] = Some(answer));
                }
                Sent::Astray => drop(astray.spawn(find(topology.clone(), part, lane, left()))),
                Sent::Failed(error) => failed.note(error)?,
            }
        }
    }
    while let Some(found) = astray.join_next().await {
        let (part, answer) = found.map_err(|_| runtime_ended())?;
        match answer {
            Ok(own) => part.places.iter().zip(own).for_each(|(place, answer)| answers[*place] = Some(answer)),
            Err(error) => failed.note(error)?,
        }
    }
    failed.fill(answers)
}

/// What became of the renewals of one slot in a packet.
#[derive(Debug)]
enum Sent {
    Answered(Vec<Renewed>),
    /// The node does not have the slot, or not now.
    Astray,
    Failed(StoreError),
}

/// Some of several may fail: what is known of the others counts all the same.
#[derive(Debug, Default)]
struct Failed(Option<StoreError>);

impl Failed {
    /// Only an outage is left for later. The engine asks one by one when some are refused, so that it knows which.
    fn note(&mut self, error: StoreError) -> Result<(), StoreError> {
        if !error.kind.is_outage() {
            return Err(error);
        }
        self.0.get_or_insert(error);
        Ok(())
    }

    /// Nothing is known of those that have no answer; an error where that is so of all.
    fn fill(self, answers: Vec<Option<Renewed>>) -> Result<Vec<Renewed>, StoreError> {
        match self.0 {
            Some(error) if answers.iter().all(Option::is_none) => Err(error),
            Some(_) => Ok(answers.into_iter().map(|answer| answer.unwrap_or(Renewed::Unknown)).collect()),
            None => answers.into_iter().collect::<Option<_>>().ok_or_else(|| garbled("renew")),
        }
    }
}

/// Sends one packet. An error where nothing is known of any part.
async fn send(
    topology: &Arc<Topology>,
    node: &Node,
    parts: Vec<Part>,
    lane: Lane,
    limit: Duration,
) -> Result<Vec<(Part, Sent)>, StoreError> {
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
        let answers = node.store.connection(lane).send_each(&packet, left).await;
        let answers = match answers.inspect_err(|_| topology.suspect(node)) {
            Ok(answers) => answers,
            Err(error) if answered.is_empty() => return Err(error),
            Err(error) => {
                answered.extend(unanswered.into_iter().map(|part| (part, Sent::Failed(error.clone()))));
                break;
            }
        };
        let mut unknown = Vec::new();
        for (part, answer) in unanswered.into_iter().zip(answers) {
            match answer.map_err(Refusal::from) {
                Ok(value) => {
                    let own = renewed(value).filter(|own| own.len() == part.renewals.len());
                    answered.push((part, own.map_or_else(|| Sent::Failed(garbled("renew")), Sent::Answered)));
                }
                Err(Refusal::NoScript) if !whole => unknown.push(part),
                Err(Refusal::NoScript) => answered.push((part, Sent::Astray)),
                Err(Refusal::Failed(error)) if error.detour.is_some() => answered.push((part, Sent::Astray)),
                Err(Refusal::Failed(error)) => answered.push((part, Sent::Failed(error))),
            }
        }
        unanswered = unknown;
        if unanswered.is_empty() {
            break;
        }
    }
    Ok(answered)
}

/// What a node has renewed counts once its replicas have it, where they are to.
async fn acknowledge(node: &Node, sent: Vec<(Part, Sent)>, lane: Lane, limit: Duration) -> Vec<(Part, Sent)> {
    let (mut renewals, mut answers) = (Vec::new(), Vec::new());
    for (part, sent) in &sent {
        if let Sent::Answered(own) = sent {
            renewals.extend_from_slice(&part.renewals);
            answers.extend_from_slice(own);
        }
    }
    match node.store.acknowledge_renewals(&renewals, answers, lane, limit).await {
        Ok(answers) => {
            let mut rest = answers.into_iter();
            let told = |sent| match sent {
                Sent::Answered(own) => Sent::Answered(rest.by_ref().take(own.len()).collect()),
                other => other,
            };
            let (parts, sent): (Vec<_>, Vec<_>) = sent.into_iter().unzip();
            parts.into_iter().zip(sent.into_iter().map(told)).collect()
        }
        Err(error) => sent
            .into_iter()
            .map(|(part, sent)| match sent {
                Sent::Answered(_) => (part, Sent::Failed(error.clone())),
                other => (part, other),
            })
            .collect(),
    }
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
    let mut way = Way::new(topology, slot, lane, topology.own_share(limit));
    loop {
        let leg = way.next().await?;
        let Leg { node, asking, limit: left } = &leg;
        let form = if *asking { Form::Asking } else { Form::Known };
        let error = match node.store.renew_here(renewals, form, lane, *left).await {
            Ok(answers) => {
                let left = limit.saturating_sub(begun.elapsed());
                return node.store.acknowledge_renewals(renewals, answers, lane, left).await;
            }
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
    let (mut answers, mut failed) = (vec![None; renewals.len()], Failed::default());
    while let Some(ended) = sent.join_next().await {
        let (place, answer) = ended.map_err(|_| runtime_ended())?;
        match answer {
            Ok(mut own) => answers[place] = own.pop(),
            Err(error) => failed.note(error)?,
        }
    }
    failed.fill(answers)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::StoreErrorKind;

    #[test]
    fn an_outage_of_some_leaves_the_answers_of_the_others() {
        let outage = || StoreError::unanswered("gone");
        let mut failed = Failed::default();
        failed.note(outage()).unwrap();
        let answers = failed.fill(vec![Some(Renewed::Yes), None, Some(Renewed::Stolen)]).unwrap();
        assert_eq!(answers, [Renewed::Yes, Renewed::Unknown, Renewed::Stolen]);
        // Nothing is known: that is told.
        let mut failed = Failed::default();
        failed.note(outage()).unwrap();
        assert_eq!(failed.fill(vec![None, None]).unwrap_err().text, "gone");
        assert!(Failed::default().fill(vec![Some(Renewed::Yes), None]).is_err());
        // Who is refused is found by asking one by one.
        let refused = StoreError::new(StoreErrorKind::Permission, "no");
        assert!(Failed::default().note(refused).is_err());
    }
}

//! Publishing and subscribing, plain and sharded.

use super::{Call, Outcome, Spec};
use crate::embedded::core::Channels;
use crate::embedded::data::Bytes;
use crate::wire::Answer;

pub(super) const SPECS: &[Spec] = &[
    Spec::new("publish", 3, |call, parts| publish(call, parts, Channels::Plain)),
    Spec::new("spublish", 3, |call, parts| publish(call, parts, Channels::Sharded)),
    Spec::outside("subscribe", -2, |call, parts| subscribe(call, parts, Channels::Plain)).subscribed(),
    Spec::outside("ssubscribe", -2, |call, parts| subscribe(call, parts, Channels::Sharded)).subscribed(),
    Spec::outside("unsubscribe", -1, |call, parts| unsubscribe(call, parts, Channels::Plain)).subscribed(),
    Spec::outside("sunsubscribe", -1, |call, parts| unsubscribe(call, parts, Channels::Sharded)).subscribed(),
];

fn publish(call: &mut Call<'_>, parts: &[Bytes], kind: Channels) -> Outcome {
    Ok(Answer::count(call.core.publish(kind, &parts[1], &parts[2])))
}

fn subscribe(call: &mut Call<'_>, parts: &[Bytes], kind: Channels) -> Outcome {
    let confirm = |channel: &Bytes| change(call, kind, "subscribe", Some(channel));
    Ok(Answer::Many(parts[1..].iter().map(confirm).collect()))
}

fn unsubscribe(call: &mut Call<'_>, parts: &[Bytes], kind: Channels) -> Outcome {
    let listed = match call.core.clients.get(&call.client) {
        Some(client) if parts.len() == 1 => client.channels(kind).iter().cloned().collect(),
        _ => parts[1..].to_vec(),
    };
    if listed.is_empty() {
        return Ok(Answer::Many(vec![change(call, kind, "unsubscribe", None)]));
    }
    Ok(Answer::Many(listed.iter().map(|channel| change(call, kind, "unsubscribe", Some(channel))).collect()))
}

/// Changes one subscription and confirms it with the number of those that are left.
fn change(call: &mut Call<'_>, kind: Channels, what: &str, channel: Option<&Bytes>) -> Answer {
    let word = if kind == Channels::Sharded { format!("s{what}") } else { what.to_owned() };
    let mut left = 0;
    if let Some(client) = call.core.clients.get_mut(&call.client) {
        let channels = client.channels_mut(kind);
        match (what, channel) {
            ("subscribe", Some(channel)) => drop(channels.insert(channel.clone())),
            (_, Some(channel)) => drop(channels.remove(channel)),
            (_, None) => {}
        }
        left = channels.len();
    }
    Answer::Push(vec![Answer::bulk(word), Answer::optional(channel.cloned()), Answer::count(left)])
}

//! The server about itself.

use super::{Call, Failure, Outcome, Spec, integer};
use crate::embedded::data::Bytes;
use crate::wire::{Answer, Protocol};

/// The version whose behaviour this server has.
pub(super) const VERSION: &str = "7.0.15";

pub(super) const SPECS: &[Spec] = &[
    Spec::new("ping", -1, ping).subscribed(),
    Spec::new("echo", 2, |_, parts| Ok(Answer::bulk(&parts[1]))),
    Spec::new("time", 1, |call, _| {
        let (seconds, micros) = (call.core.time().div_euclid(1_000_000), call.core.time().rem_euclid(1_000_000));
        Ok(Answer::List(vec![Answer::bulk(seconds.to_string()), Answer::bulk(micros.to_string())]))
    }),
    Spec::new("select", 2, |_, parts| match integer(&parts[1])? {
        0 => Ok(Answer::OK),
        _ => Err(Failure::of("ERR DB index is out of range")),
    }),
    Spec::new("info", -1, info),
];

fn ping(call: &mut Call<'_>, parts: &[Bytes]) -> Outcome {
    let message = match parts {
        [_] => None,
        [_, message] => Some(message),
        _ => return Err(Failure::arity("ping")),
    };
    let client = call.core.clients.get(&call.client);
    if client.is_some_and(|client| client.is_subscribed() && client.protocol == Protocol::Resp2) {
        return Ok(Answer::List(vec![Answer::bulk("pong"), Answer::bulk(message.cloned().unwrap_or_default())]));
    }
    Ok(message.map_or(Answer::Status("PONG".into()), Answer::bulk))
}

/// The few lines that clients look at, whatever section they ask for.
fn info(call: &mut Call<'_>, _parts: &[Bytes]) -> Outcome {
    let clients = call.core.clients.len() - 1;
    let keys = call.core.data.keys().count();
    let run_id = &call.core.run_id;
    Ok(Answer::bulk(format!(
        "# Server\r\nredis_version:{VERSION}\r\nredis_mode:standalone\r\nserver_name:distlock-testkit\r\nrun_id:{run_id}\r\n\
         \r\n# Clients\r\nconnected_clients:{clients}\r\n\
         \r\n# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n\
         \r\n# Persistence\r\nloading:0\r\naof_enabled:0\r\n\
         \r\n# Replication\r\nrole:master\r\nconnected_slaves:0\r\n\
         \r\n# Cluster\r\ncluster_enabled:0\r\n\
         \r\n# Keyspace\r\ndb0:keys={keys},expires=0,avg_ttl=0\r\n"
    )))
}

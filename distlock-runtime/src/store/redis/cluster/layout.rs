//! Which node serves which slots, as a node of the cluster tells it.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use redis::Value;

use crate::slot::SLOTS;

/// Where a node listens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Address {
    pub(super) host: Arc<str>,
    pub(super) port: u16,
}

impl Address {
    pub(super) fn new(host: &str, port: u16) -> Self {
        Self { host: host.into(), port }
    }

    /// Reads `host:port`. Without a host it is that of the node which says so, which does not know its own name.
    pub(super) fn read(text: &str, said_by: &Self) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        Some(said_by.beside(Some(host.trim_matches(['[', ']'])), port.parse().ok()?))
    }

    /// Another node that this one names.
    fn beside(&self, host: Option<&str>, port: u16) -> Self {
        let host = match host {
            None | Some("" | "?") => self.host.clone(),
            Some(host) => host.into(),
        };
        Self { host, port }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// The slots of one node and its replicas.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) slots: RangeInclusive<u16>,
    pub(super) primary: Address,
    pub(super) replicas: Vec<Address>,
}

/// Reads the answer to `CLUSTER SLOTS`.
pub(super) fn shares(answer: &Value, said_by: &Address) -> Option<Vec<Share>> {
    let Value::Array(shares) = answer else { return None };
    shares.iter().map(|share| read_share(share, said_by)).collect()
}

/// `[first slot, last slot, primary, replica ...]`, a node being `[host, port, ...]`.
fn read_share(share: &Value, said_by: &Address) -> Option<Share> {
    let Value::Array(parts) = share else { return None };
    let [first, last, primary, replicas @ ..] = parts.as_slice() else { return None };
    let slot = |value: &Value| match value {
        Value::Int(number) => u16::try_from(*number).ok().filter(|slot| *slot < SLOTS),
        _ => None,
    };
    Some(Share {
        slots: slot(first)?..=slot(last)?,
        primary: read_node(primary, said_by)?,
        replicas: replicas.iter().filter_map(|replica| read_node(replica, said_by)).collect(),
    })
}

fn read_node(node: &Value, said_by: &Address) -> Option<Address> {
    let Value::Array(parts) = node else { return None };
    let [host, Value::Int(port), ..] = parts.as_slice() else { return None };
    let host = match host {
        Value::BulkString(bytes) => Some(std::str::from_utf8(bytes).ok()?),
        Value::SimpleString(text) => Some(text.as_str()),
        Value::Nil => None,
        _ => return None,
    };
    Some(said_by.beside(host, u16::try_from(*port).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(host: Value, port: i64) -> Value {
        Value::Array(vec![host, Value::Int(port), Value::BulkString(b"id".to_vec()), Value::Array(vec![])])
    }

    #[test]
    fn a_node_that_does_not_know_its_name_is_where_it_was_asked() {
        let asked = Address::new("db.example", 7000);
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        for unknown in [Value::Nil, text(""), text("?")] {
            let answer = Value::Array(vec![Value::Array(vec![
                Value::Int(0),
                Value::Int(5460),
                node(unknown, 7001),
                node(text("10.0.0.2"), 7002),
            ])]);
            let share = Share {
                slots: 0..=5460,
                primary: Address::new("db.example", 7001),
                replicas: vec![Address::new("10.0.0.2", 7002)],
            };
            assert_eq!(shares(&answer, &asked), Some(vec![share]));
        }
        assert_eq!(Address::read(":6381", &asked), Some(Address::new("db.example", 6381)));
        assert_eq!(Address::read("::1:6381", &asked), Some(Address::new("::1", 6381)));
        assert_eq!(Address::read("[::1]:6381", &asked).unwrap().to_string(), "[::1]:6381");
        for bad in ["", "host", "host:x", "host:70000"] {
            assert_eq!(Address::read(bad, &asked), None, "{bad:?}");
        }
    }

    #[test]
    fn an_answer_that_is_none_is_not_guessed() {
        let asked = Address::new("h", 1);
        let slots = |first, last| Value::Array(vec![Value::Array(vec![Value::Int(first), Value::Int(last)])]);
        for bad in [Value::Nil, Value::Array(vec![Value::Int(1)]), slots(0, 1), slots(0, 16_384), slots(-1, 5)] {
            assert_eq!(shares(&bad, &asked), None, "{bad:?}");
        }
        assert_eq!(shares(&Value::Array(vec![]), &asked), Some(vec![]));
    }
}

//! The URL of a cluster: some of its nodes, by which the others are found, and the login for all of them.

use redis::{ConnectionAddr, ConnectionInfo};

use super::layout::Address;
use crate::store::redis::target::{Access, Server, Target};
use crate::store::redis::url;
use crate::store::{StoreError, StoreErrorKind};

/// What a URL says.
#[derive(Debug)]
pub(super) struct Seeds {
    pub(super) addresses: Vec<Address>,
    /// How to reach a node, but for its address.
    login: ConnectionInfo,
    access: Access,
}

impl Seeds {
    /// Reads `redis://[user:password@]host[:port],host[:port]`.
    pub(super) fn read(url: &str, access: Access) -> Result<Self, StoreError> {
        let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
        let (authority, tail) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (format!("{login}@"), hosts),
            None => (String::new(), authority),
        };
        let mut seeds: Option<Self> = None;
        for host in hosts.split(',').map(str::trim) {
            let url = format!("redis://{login}{host}{tail}");
            let info = url::read(&url).map_err(|_| bad_url("a host, the login or an option"))?;
            if info.redis_settings().db() != 0 {
                return Err(bad_url("a cluster has no database but 0"));
            }
            let ConnectionAddr::Tcp(host, port) = info.addr() else { return Err(bad_url("a host")) };
            if host.is_empty() {
                return Err(bad_url("a host is empty"));
            }
            let address = Address::new(host.trim_matches(['[', ']']), *port);
            match &mut seeds {
                Some(seeds) => seeds.addresses.push(address),
                None => seeds = Some(Self { addresses: vec![address], login: info, access: access.clone() }),
            }
        }
        seeds.ok_or_else(|| bad_url("it names no host"))
    }

    /// How to reach the node at an address.
    pub(super) fn node(&self, address: &Address) -> Target {
        let mut to = self.login.addr().clone();
        if let ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } = &mut to {
            (*host, *port) = (address.host.to_string(), address.port);
        }
        Target::Server(Box::new(Server { info: self.login.clone().set_addr(to), access: self.access.clone() }))
    }
}

/// The URL itself may hold a password, so it is not repeated.
fn bad_url(problem: &str) -> StoreError {
    StoreError::new(
        StoreErrorKind::Config,
        format!(
            "the URL of the cluster cannot be read ({problem}); write `redis+cluster://[user:password@]host[:port],host[:port]`, and percent-encode `@`, `/`, `?` and `#` in a password"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_some_nodes_and_one_login_for_all() {
        let seeds = Seeds::read("redis://ada:s%40crt@a,b:7001, [::1]:7002", Access::default()).unwrap();
        let expected = [Address::new("a", 6379), Address::new("b", 7001), Address::new("::1", 7002)];
        assert_eq!(seeds.addresses, expected);
        let Target::Server(other) = seeds.node(&Address::new("c", 7003)) else { panic!("no server") };
        assert_eq!(other.info.addr(), &ConnectionAddr::Tcp("c".to_owned(), 7003));
        let settings = other.info.redis_settings();
        assert_eq!((settings.username(), settings.password()), (Some("ada"), Some("s@crt")));
        assert_eq!(Seeds::read("redis://h:1/0", Access::default()).unwrap().addresses, [Address::new("h", 1)]);
    }

    #[test]
    fn a_bad_url_is_refused_without_repeating_its_password() {
        for rest in ["//", "//a,,b", "//h/1", "//:p@ss/w#rd@host", "//:secret@a:x", "//:secret@a:70000,b", "//a,"] {
            let text = Seeds::read(&format!("redis:{rest}"), Access::default()).unwrap_err().text;
            assert!(text.contains("redis+cluster://"), "{text}");
            assert!(!text.contains("secret") && !text.contains("w#rd"), "{text}");
        }
    }
}

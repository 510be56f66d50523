//! Reading the URL of one server. It may hold a password, so no text here repeats any part of it.

use redis::{ConnectionInfo, IntoConnectionInfo, ProtocolVersion};

use crate::store::{StoreError, StoreErrorKind};

/// Reads a `redis://`, `rediss://` or `unix://` URL, and turns the client's view of it into ours: RESP3 and no Nagle
/// delay. Whether encryption is there to be had is not asked here.
pub(super) fn read(url: &str) -> Result<ConnectionInfo, StoreError> {
    let (scheme, rest) = url.split_once("://").unwrap_or(("redis", url));
    let scheme = if scheme == "rediss" { "redis" } else { scheme };
    // What the client crate would pass over in silence: a password with a `#` or `?` in it would then be cut, and sent to
    // a host that its front names.
    if let Some((_, fragment)) = rest.split_once('#') {
        return Err(match fragment {
            "insecure" => StoreError::new(
                StoreErrorKind::Config,
                "`#insecure` asks for TLS without a check of the server's certificate, which is not to be had here; leave it out, and give the server's authority with `Builder::tls(Tls::new().ca_file(\"ca.pem\"))`",
            ),
            _ => bad("it has a `#`"),
        });
    }
    if let Some((_, options)) = rest.split_once('?') {
        let known: &[&str] = if scheme == "unix" { &["user", "pass", "db", "protocol"] } else { &["protocol"] };
        let is_known = |option: &str| known.contains(&option.split('=').next().unwrap_or_default());
        if !options.split('&').filter(|option| !option.is_empty()).all(is_known) {
            return Err(bad("it has an option after `?` that is not known"));
        }
    }
    if scheme == "redis" {
        check_authority(rest)?;
    }
    let info = format!("{scheme}://{rest}").into_connection_info().map_err(|error| bad(error.category()))?;
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    let tcp = info.tcp_settings().clone().set_nodelay(true);
    Ok(info.set_redis_settings(settings).set_tcp_settings(tcp))
}

/// What can be said better of host and port than that they cannot be read. Where an `@` comes later, what looks like a port
/// may be a password.
fn check_authority(rest: &str) -> Result<(), StoreError> {
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, behind) = rest.split_at(end);
    if behind.contains('@') {
        return Ok(());
    }
    let (login, host) = authority.rsplit_once('@').map_or(("", authority), |(login, host)| (login, host));
    if host.contains(',') && !login.contains('@') {
        return Err(StoreError::new(
            StoreErrorKind::Config,
            "the URL names several hosts, and `redis://` is for one server; write `redis+sentinel://host,host/name`, `redis+cluster://host,host`, or `redlock:redis://host,redis://host,redis://host`, and percent-encode `,` in a password",
        ));
    }
    let behind_address = host.rsplit_once(']').map_or(host, |(_, behind)| behind);
    match behind_address.rsplit_once(':') {
        Some((_, port)) if !port.is_empty() && port.parse::<u16>().is_err() => {
            Err(bad("its port is not a number up to 65535"))
        }
        _ => Ok(()),
    }
}

fn bad(problem: &str) -> StoreError {
    StoreError::new(
        StoreErrorKind::Config,
        format!(
            "the URL of the lock server cannot be read ({problem}); write `redis://[user:password@]host[:port][/db]`, `rediss://` with TLS, or `unix:///path[?user=..&pass=..&db=..]`, and percent-encode `@`, `/`, `?`, `#`, `:`, `,` and `%` in a password"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_url_is_refused_without_repeating_its_password() {
        let bad = [
            "redis://:p@ss/w#rd@host",
            "redis://u:12#w#rd@host",
            "redis://u:12?w#rd@host",
            "redis://u:12?secret@host",
            "redis://u:12/secret@host",
            "redis://host/?ssl=secret",
            "unix:///path?pass=a&secret",
            "http://:secret@host",
            "nonsense secret",
            "",
        ];
        for url in bad {
            let text = read(url).unwrap_err().text;
            assert!(text.contains("percent-encode"), "{url}: {text}");
            assert!(!text.contains("secret") && !text.contains("w#rd"), "{text}");
        }
    }

    #[test]
    fn a_bad_port_and_a_list_of_hosts_are_called_that() {
        for url in [
            "redis://host:76O1",
            "redis://host:76O1/2",
            "redis://u:secret@host:x",
            "rediss://[::1]:x",
            "redis://h:99999",
        ] {
            let text = read(url).unwrap_err().text;
            assert!(text.contains("its port is not a number") && !text.contains("secret"), "{url}: {text}");
        }
        // This may be a password.
        let text = read("redis://u:secret/x@host").unwrap_err().text;
        assert!(!text.contains("its port"), "{text}");
        for url in ["redis://h1,h2", "redis://u:secret@h1:1,h2:2/3"] {
            let text = read(url).unwrap_err().text;
            assert!(text.contains("redis+sentinel://") && text.contains("redlock:"), "{text}");
            assert!(text.contains("redis+cluster://") && !text.contains("secret"), "{text}");
        }
        for url in ["redis://host:7601/1", "redis://[::1]:7601", "redis://[::1]", "redis://a:b,c@host", "redis://host:"]
        {
            read(url).unwrap();
        }
    }

    #[test]
    fn percent_encoded_logins_are_decoded() {
        let address = read("rediss://a%40b:p%40ss%2Fw%23rd%3F%25@host:6380/3").unwrap();
        let settings = address.redis_settings();
        assert_eq!((settings.username(), settings.password(), settings.db()), (Some("a@b"), Some("p@ss/w#rd?%"), 3));
        let address = read("unix:///run/locks?user=app&pass=p%26q&db=2").unwrap();
        let settings = address.redis_settings();
        assert_eq!((settings.username(), settings.password(), settings.db()), (Some("app"), Some("p&q"), 2));
    }

    #[test]
    fn an_unchecked_certificate_is_not_to_be_had() {
        let text = read("rediss://host:6380/#insecure").unwrap_err().text;
        assert!(text.contains("Tls::new().ca_file"), "{text}");
    }
}

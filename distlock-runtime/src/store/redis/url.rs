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
    let info = format!("{scheme}://{rest}").into_connection_info().map_err(|error| bad(error.category()))?;
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    let tcp = info.tcp_settings().clone().set_nodelay(true);
    Ok(info.set_redis_settings(settings).set_tcp_settings(tcp))
}

fn bad(problem: &str) -> StoreError {
    StoreError::new(
        StoreErrorKind::Config,
        format!(
            "the URL of the lock server cannot be read ({problem}); write `redis://[user:password@]host[:port][/db]`, `rediss://` with TLS, or `unix:///path[?user=..&pass=..&db=..]`, and percent-encode `@`, `/`, `?`, `#`, `:` and `%` in a password"
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
    fn percent_encoded_logins_are_decoded() {
        let address = read("rediss://a%40b:p%40ss%2Fw%23rd%3F%25@host:6380/3").unwrap();
        let settings = address.redis_settings();
        assert_eq!((settings.username(), settings.password(), settings.db()), (Some("a@b"), Some("p@ss/w#rd?%"), 3));
        let address = read("unix:///tmp/socket?user=app&pass=p%26q&db=2").unwrap();
        let settings = address.redis_settings();
        assert_eq!((settings.username(), settings.password(), settings.db()), (Some("app"), Some("p&q"), 2));
    }

    #[test]
    fn an_unchecked_certificate_is_not_to_be_had() {
        let text = read("rediss://host:6380/#insecure").unwrap_err().text;
        assert!(text.contains("Tls::new().ca_file"), "{text}");
    }
}

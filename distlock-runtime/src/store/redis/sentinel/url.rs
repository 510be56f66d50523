//! The URL of Sentinels: their hosts, what they call the primary, and a login for each of the two.

use std::time::Duration;

use redis::{ConnectionInfo, ProtocolVersion};

use super::{DEFAULT_PORT, SCHEME, Sentinels};
use crate::store::redis::target::{Access, Server};
use crate::store::redis::url;
use crate::store::{StoreError, StoreErrorKind};

impl Sentinels {
    /// Reads `redis+sentinel://[user:password@]host[:port],.../name[/db][?...]`; connects to nothing.
    pub(crate) fn read(url: &str, access: Access, connect_timeout: Duration) -> Result<Self, StoreError> {
        let rest = url.strip_prefix(SCHEME).ok_or_else(|| bad_url("another scheme"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = authority.rsplit_once('@').map_or(("", authority), |(login, hosts)| (login, hosts));
        let (name, db) = path.split_once('/').unwrap_or((path, ""));
        if name.is_empty() {
            return Err(bad_url("it names no primary"));
        }
        let query = Query::read(query)?;
        let at = |login: &str| if login.is_empty() { String::new() } else { format!("{login}@") };
        let own = |info: ConnectionInfo, protocol| {
            let settings = info.redis_settings().clone().set_protocol(protocol);
            info.set_redis_settings(settings)
        };
        let sentinel = |host: &str| {
            if host.is_empty() {
                return Err(bad_url("a host is empty"));
            }
            let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
            let port = if has_port { String::new() } else { format!(":{DEFAULT_PORT}") };
            let info = url::read(&format!("redis://{}{host}{port}", at(&query.login)));
            let info = info.map(|info| own(info, ProtocolVersion::RESP2)).map_err(|_| bad_url("a host or port"))?;
            // The login of `Builder::credentials` is that of the primary.
            let mut access = access.clone();
            access.credentials = None;
            Ok(Server { info, access })
        };
        let primary = url::read(&format!("redis://{}primary/{db}?{}", at(login), query.rest))
            .map_err(|_| bad_url("the login, the database or an option"))?;
        Ok(Self {
            name: name.to_owned(),
            sentinels: hosts.split(',').map(|host| sentinel(host.trim())).collect::<Result<_, _>>()?,
            primary: Server { info: own(primary, ProtocolVersion::RESP3), access },
            // A little less, so that what is known of the reason is told in time.
            limit: connect_timeout.mul_f64(0.95),
        })
    }
}

/// Without the URL, which may hold a password.
fn bad_url(problem: &str) -> StoreError {
    StoreError::new(
        StoreErrorKind::Config,
        format!(
            "the URL of the Sentinels cannot be read ({problem}); write `{SCHEME}[user:password@]host1[:port],host2[:port]/name[/db]`, and percent-encode `@`, `/`, `?` and `#` in a password"
        ),
    )
}

/// What the URL says behind the question mark.
struct Query {
    /// Login at the Sentinels, as it stands in a URL.
    login: String,
    rest: String,
}

impl Query {
    fn read(query: &str) -> Result<Self, StoreError> {
        let (mut user, mut password, mut rest) = ("", None, Vec::new());
        for setting in query.split('&').filter(|setting| !setting.is_empty()) {
            let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
            match name {
                "sentinel_username" => user = value,
                "sentinel_password" => password = Some(value),
                // A password under a mistyped name would silently be none.
                _ if name.starts_with("sentinel") => {
                    return Err(bad_url("of the Sentinels it says only `sentinel_username` and `sentinel_password`"));
                }
                _ => rest.push(setting),
            }
        }
        // What may stand in a query as it is would end a login.
        let plain = |text: &str| text.replace('/', "%2F").replace('?', "%3F").replace('@', "%40").replace(':', "%3A");
        let login = password.map(|password| format!("{}:{}", plain(user), plain(password))).unwrap_or_default();
        Ok(Self { login, rest: rest.join("&") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<Sentinels, StoreError> {
        Sentinels::read(url, Access::default(), Duration::from_secs(1))
    }

    #[test]
    fn a_url_names_the_sentinels_the_primary_and_both_logins() {
        let full = read(
            "redis+sentinel://app:p%40ss@one:1,two,[::1]:3,[fe80::1]/main/4?sentinel_password=a/b%3F&sentinel_username=watch",
        )
        .unwrap();
        let hosts: Vec<_> = full.sentinels.iter().map(|it| it.info.addr().to_string()).collect();
        assert_eq!(hosts, ["one:1", "two:26379", "::1:3", "fe80::1:26379"]);
        let login = |info: &ConnectionInfo| {
            let settings = info.redis_settings();
            (settings.username().map(str::to_owned), settings.password().map(str::to_owned))
        };
        assert_eq!(login(&full.primary.info), (Some("app".into()), Some("p@ss".into())));
        assert_eq!(full.primary.info.redis_settings().db(), 4);
        assert!(full.sentinels.iter().all(|it| login(&it.info) == (Some("watch".into()), Some("a/b?".into()))));
        assert_eq!(full.name, "main");
        let plain = read("redis+sentinel://one/main").unwrap();
        assert_eq!(login(&plain.primary.info), (None, None));
        assert_eq!(login(&plain.sentinels[0].info), (None, None));
        let nameless = read("redis+sentinel://one/main?sentinel_password=x").unwrap();
        assert_eq!(login(&nameless.sentinels[0].info).1, Some("x".into()));
        assert!(login(&nameless.sentinels[0].info).0.is_none_or(|user| user.is_empty()));
    }

    #[test]
    fn a_url_that_cannot_be_read_is_refused_without_its_passwords() {
        for (url, problem) in [
            ("redis+sentinel://:secret@one,two", "names no primary"),
            ("redis+sentinel://:secret@one,,two/main", "host is empty"),
            ("redis+sentinel:///main", "host is empty"),
            ("redis+sentinel://:secret@one:x/main", "host or port"),
            ("redis+sentinel://:secret@one/main/x", "database"),
            ("redis+sentinel://one/main?sentinel_pasword=secret", "only `sentinel_username`"),
        ] {
            let error = read(url).unwrap_err();
            assert_eq!(error.kind, StoreErrorKind::Config);
            assert!(error.text.contains(problem) && error.text.contains("percent-encode"), "{url}: {}", error.text);
            assert!(!error.text.contains("secret"), "{}", error.text);
        }
        assert!(!format!("{:?}", read("redis+sentinel://:secret@one/main").unwrap()).contains("secret"));
    }
}

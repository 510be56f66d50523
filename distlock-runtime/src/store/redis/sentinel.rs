//! Finding the primary: the Sentinels are asked for it whenever a connection is made, so after each drop and each `READONLY`.
//!
//! All Sentinels of the URL are asked at the same time. The address that most of them name is taken as soon as it is known;
//! a dead Sentinel then costs nothing, and one that has slept through a failover is outvoted. What they name must say itself
//! that it is a primary. A primary that does not answer is given up as soon as the Sentinels name another one.
//!
//! A primary that is replaced while it is well hears of it seconds later, and takes writes until then that nobody will see
//! again. So each connection listens to one Sentinel, and is closed when most of them name another primary.

use std::collections::HashSet;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, ErrorKind, ProtocolVersion, PushInfo, PushKind, RedisError,
    Value,
};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::answers::classify;
use super::target::{Access, Failure, Server, Watch};
use super::url;
use crate::store::{StoreError, StoreErrorKind};

/// How the URLs begin that are read here.
pub(crate) const SCHEME: &str = "redis+sentinel://";

/// Where Sentinels listen unless they are told otherwise.
const DEFAULT_PORT: &str = "26379";

/// How often the Sentinels are asked again while their last answer did not lead to a primary.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// How often at the least. Each question is a connection to each Sentinel, from each process.
const ASK_SELDOM: Duration = Duration::from_millis(500);

/// Where a Sentinel publishes that it takes another server for the primary. The one that leads a failover says the first
/// when it is over, and names the new one from the second on.
const SWITCHES: [&str; 2] = ["+switch-master", "+promoted-slave"];

/// For how long after such a word the others are asked whether they agree.
const AGREE_WITHIN: Duration = Duration::from_secs(10);

/// How often it is looked whether the Sentinel that is listened to still answers.
const PING: Duration = Duration::from_secs(5);

/// The pause before another Sentinel is listened to.
const NEXT_SENTINEL: Duration = Duration::from_secs(1);

/// What the URL says, read once.
#[derive(Clone)]
pub(crate) struct Sentinels {
    /// What the Sentinels call the primary.
    name: String,
    sentinels: Vec<Server>,
    /// How one gets in at the primary, wherever it is.
    primary: Server,
    /// How long one connection may take to be made, all questions included.
    limit: Duration,
}

impl fmt::Debug for Sentinels {
    /// Without the logins.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sentinels").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What one Sentinel said.
enum Answer {
    Primary(Address),
    /// It knows no primary of this name, but these.
    Unknown(Vec<String>),
    /// It wants a login, or is no Sentinel.
    Refused(StoreError),
    /// No answer, or none that helps.
    Nothing(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Address {
    host: String,
    port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Why an address that the Sentinels named led to no connection.
enum Dead {
    /// The Sentinels name another one by now, or it is about to become a primary.
    Ask(StoreError),
    /// It was asked, and that was that.
    End(Failure),
}

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

    /// The primary, whoever it is now.
    pub(super) fn address(&self) -> String {
        format!("the primary `{}`", self.name)
    }

    /// Finds the primary and connects to it.
    pub(super) async fn connect(
        self: &Arc<Self>,
        config: &AsyncConnectionConfig,
    ) -> Result<(MultiplexedConnection, Watch), Failure> {
        let give_up_at = Instant::now() + self.limit;
        let mut reason = None;
        loop {
            let left = give_up_at.saturating_duration_since(Instant::now());
            match timeout(left, self.find(config)).await {
                Ok(Ok((connection, address))) => {
                    let watch = Watch::spawn(self.clone().watch(connection.clone(), address));
                    return Ok((connection, watch));
                }
                Ok(Err(Dead::End(failure))) => return Err(failure),
                Ok(Err(Dead::Ask(error))) => reason = Some(error),
                Err(_elapsed) => return Err(reason.unwrap_or_else(|| silent(self.limit)).into()),
            }
            sleep(ASK_AGAIN.min(give_up_at.saturating_duration_since(Instant::now()))).await;
        }
    }

    /// Asks once, and tries what is named, what most of them name first.
    async fn find(&self, config: &AsyncConnectionConfig) -> Result<(MultiplexedConnection, Address), Dead> {
        let mut dead = None;
        for address in self.ask().await.map_err(|error| Dead::End(error.into()))? {
            let tried = tokio::select! {
                biased;
                tried = self.reach(&address, config) => tried,
                () = self.another_than(&address) => {
                    let text = format!("the Sentinels name another one than {address} now, which does not answer");
                    return Err(Dead::Ask(StoreError::new(StoreErrorKind::Unavailable, text)));
                }
            };
            match tried {
                Ok(connection) => return Ok((connection, address)),
                Err(error) => dead = dead.or(Some(error)),
            }
        }
        Err(dead.unwrap_or_else(|| Dead::End(silent(self.limit).into())))
    }

    /// Connects to a server and looks whether it is a primary.
    async fn reach(&self, address: &Address, config: &AsyncConnectionConfig) -> Result<MultiplexedConnection, Dead> {
        let Server { info, access } = self.primary.clone();
        let info = info.set_addr(ConnectionAddr::Tcp(address.host.clone(), address.port));
        let mut connection = match (Server { info, access }).connect(config).await {
            Ok(connection) => connection,
            Err(Failure::Client(error)) => return Err(Dead::End(at(address, error))),
            Err(failure) => return Err(Dead::End(failure)),
        };
        // The answer of the handshake, which every user may ask for, tells the role as well.
        let answer = connection.send_packed_command(redis::cmd("HELLO").arg(3)).await;
        let answer = answer.map_err(|error| Dead::End(at(address, error)))?;
        match role(&answer) {
            Some(role) if role != "master" => Err(Dead::Ask(StoreError::new(
                StoreErrorKind::Unavailable,
                format!("the Sentinels name {address}, which says that it is a {role}; a failover may be under way"),
            ))),
            _ => Ok(connection),
        }
    }

    /// Completes when the Sentinels name another address than this one.
    async fn another_than(&self, address: &Address) {
        let mut pause = ASK_AGAIN;
        loop {
            sleep(pause.mul_f64(0.5 + fastrand::f64())).await;
            if self.name_another_than(address).await {
                return;
            }
            pause = (pause * 2).min(ASK_SELDOM);
        }
    }

    /// Most of the Sentinels name another one, or all that answer do.
    async fn name_another_than(&self, address: &Address) -> bool {
        self.ask().await.is_ok_and(|named| !named.contains(address))
    }

    /// Closes the connection when the Sentinels name another primary than the one it leads to.
    async fn watch(self: Arc<Self>, mut connection: MultiplexedConnection, address: Address) {
        let mut next = fastrand::usize(..self.sentinels.len());
        while self.listen(self.sentinels[next].clone(), &address).await.is_err() {
            next = (next + 1) % self.sentinels.len();
            sleep(NEXT_SENTINEL.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
        }
        // The server closes the connection behind the last answer that it owes: those who wait are told, and ask anew.
        let _ = connection.send_packed_command(&redis::cmd("QUIT")).await;
    }

    /// Listens to one Sentinel until another address is named than this one; fails when it does not answer.
    async fn listen(&self, sentinel: Server, address: &Address) -> Result<(), Failure> {
        let Server { info, access } = sentinel;
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let sentinel = Server { info: info.set_redis_settings(settings), access };
        let (told, gone) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (tell, end, own) = (told.clone(), gone.clone(), self.name.clone());
        let limit = Some(self.limit);
        let config = AsyncConnectionConfig::new().set_response_timeout(limit).set_connection_timeout(limit);
        let config = config.set_push_sender(move |push: PushInfo| {
            match push.kind {
                // They publish for all primaries that they know.
                PushKind::Message
                    if push.data.get(1).and_then(text).is_some_and(|it| it.split(' ').any(|it| it == own)) =>
                {
                    tell.notify_one();
                }
                PushKind::Disconnection => end.notify_one(),
                _ => {}
            }
            Ok::<_, Infallible>(())
        });
        let mut connection = sentinel.connect(&config).await?;
        connection.subscribe(&SWITCHES[..]).await?;
        // It may have been so already.
        if self.name_another_than(address).await {
            return Ok(());
        }
        loop {
            tokio::select! {
                biased;
                () = gone.notified() => return Err(RedisError::from((ErrorKind::Io, "the Sentinel has gone")).into()),
                () = told.notified() => {
                    // The one that told may be the first to know.
                    if timeout(AGREE_WITHIN, self.another_than(address)).await.is_ok() {
                        return Ok(());
                    }
                }
                () = sleep(PING) => drop(connection.send_packed_command(&redis::cmd("PING")).await?),
            }
        }
    }

    /// Asks all Sentinels. What most of all of them name is the answer; else whatever was named, the most often first.
    async fn ask(&self) -> Result<Vec<Address>, StoreError> {
        // For those that do not answer, where the others are no majority.
        let limit = self.limit / 3;
        let mut questions = JoinSet::new();
        for sentinel in self.sentinels.iter().cloned() {
            let name = self.name.clone();
            questions.spawn(async move {
                let host = sentinel.info.addr().to_string();
                match timeout(limit, ask_one(sentinel, &name)).await {
                    Ok(answer) => answer,
                    Err(_elapsed) => Answer::Nothing(format!("{host}: no answer within {limit:?}")),
                }
            });
        }
        let mut votes: Vec<(usize, Address)> = Vec::new();
        let mut others = Vec::new();
        while let Some(answer) = questions.join_next().await {
            match answer {
                Ok(Answer::Primary(address)) => {
                    let place = votes.iter().position(|(_, named)| *named == address).unwrap_or_else(|| {
                        votes.push((0, address));
                        votes.len() - 1
                    });
                    votes[place].0 += 1;
                    if votes[place].0 > self.sentinels.len() / 2 {
                        return Ok(vec![votes.swap_remove(place).1]);
                    }
                }
                Ok(other) => others.push(other),
                Err(_) => others.push(Answer::Nothing("the runtime ends".to_owned())),
            }
        }
        if votes.is_empty() {
            return Err(self.nobody_knows(others));
        }
        votes.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
        Ok(votes.into_iter().map(|(_, address)| address).collect())
    }

    /// No Sentinel named a primary.
    fn nobody_knows(&self, answers: Vec<Answer>) -> StoreError {
        let name = &self.name;
        let (mut known, mut unknowing, mut refused, mut silent) = (HashSet::new(), 0, Vec::new(), Vec::new());
        for answer in answers {
            match answer {
                Answer::Refused(error) => refused.push(error),
                Answer::Unknown(names) => {
                    unknowing += 1;
                    known.extend(names);
                }
                Answer::Nothing(text) => silent.push(text),
                Answer::Primary(_) => {}
            }
        }
        // One of several may have lost its configuration, or have another one; that is no reason to call the URL wrong.
        let most = self.sentinels.len() / 2;
        if refused.len() > most {
            return refused.swap_remove(0);
        }
        silent.extend(refused.into_iter().map(|error| error.text));
        if unknowing > most {
            let mut known: Vec<_> = known.into_iter().map(|name| format!("`{name}`")).collect();
            known.sort();
            let known = if known.is_empty() { "none at all".to_owned() } else { known.join(", ") };
            return StoreError::new(
                StoreErrorKind::Config,
                format!(
                    "the Sentinels know no primary `{name}`, but {known}; write the name that `sentinel monitor` gives it as in `{SCHEME}host1,host2/{name}`"
                ),
            );
        }
        StoreError::new(
            StoreErrorKind::Unavailable,
            format!(
                "no Sentinel knows where it is ({}); check that the hosts and ports in the URL are those of Sentinels, {DEFAULT_PORT} being the usual port",
                silent.join("; ")
            ),
        )
    }
}

async fn ask_one(sentinel: Server, name: &str) -> Answer {
    let host = sentinel.info.addr().to_string();
    let asked = async {
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let mut connection = sentinel.connect(&config).await?;
        let question = redis::cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(name).to_owned();
        match connection.send_packed_command(&question).await.and_then(Value::extract_error)? {
            Value::Nil => {
                // Only for the text of the error.
                let others = connection.send_packed_command(redis::cmd("SENTINEL").arg("MASTERS")).await;
                Ok::<_, Failure>(Answer::Unknown(others.map(|others| names(&others)).unwrap_or_default()))
            }
            answer => Ok(address(&answer)
                .map_or_else(|| Answer::Nothing(format!("{host}: its answer cannot be read")), Answer::Primary)),
        }
    };
    asked.await.unwrap_or_else(|failure| match failure {
        Failure::Client(error) => refused(&host, &error),
        Failure::Before(error) => Answer::Nothing(format!("{host}: {}", error.text)),
    })
}

fn refused(host: &str, error: &RedisError) -> Answer {
    let code = error.code().unwrap_or_default();
    if error.kind() == ErrorKind::AuthenticationFailed || matches!(code, "NOAUTH" | "WRONGPASS" | "NOPERM") {
        return Answer::Refused(StoreError::new(
            StoreErrorKind::Permission,
            format!(
                "the Sentinel at {host} wants a login, or another one; write `?sentinel_username=...&sentinel_password=...` at the end of the URL, percent-encoded, or leave out the name for the default user; the login before the hosts is that of the primary"
            ),
        ));
    }
    if code == "ERR" && error.detail().is_some_and(|detail| detail.to_ascii_lowercase().starts_with("unknown command"))
    {
        return Answer::Refused(StoreError::new(
            StoreErrorKind::Config,
            format!(
                "{host} is no Sentinel; write the addresses of the Sentinels as in `{SCHEME}host1,host2/mymaster`, or `redis://` for a server without them"
            ),
        ));
    }
    Answer::Nothing(format!("{host}: {error}"))
}

/// A failure of a server that the Sentinels have named.
fn at(address: &Address, error: RedisError) -> Failure {
    let meaning = classify(&error);
    if meaning.kind != StoreErrorKind::Unavailable {
        return error.into();
    }
    StoreError::new(StoreErrorKind::Unavailable, format!("at {address}: {}", meaning.text)).into()
}

fn silent(limit: Duration) -> StoreError {
    StoreError::new(
        StoreErrorKind::Unavailable,
        format!("neither the Sentinels nor what they name answered within {limit:?}"),
    )
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

/// Host and port.
fn address(answer: &Value) -> Option<Address> {
    let Value::Array(parts) = answer else { return None };
    Some(Address { host: text(parts.first()?)?.to_owned(), port: text(parts.get(1)?)?.parse().ok()? })
}

/// The names in a list of descriptions.
fn names(answer: &Value) -> Vec<String> {
    let Value::Array(primaries) = answer else { return Vec::new() };
    let name = |primary: &Value| {
        let Value::Array(fields) = primary else { return None };
        let place = fields.iter().position(|field| text(field) == Some("name"))?;
        text(fields.get(place + 1)?).map(str::to_owned)
    };
    primaries.iter().filter_map(name).collect()
}

fn role(answer: &Value) -> Option<&str> {
    let Value::Map(fields) = answer else { return None };
    fields.iter().find(|(name, _)| text(name) == Some("role")).and_then(|(_, role)| text(role))
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
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
    fn a_server_is_called_no_sentinel_only_where_it_does_not_know_the_question() {
        let answered = |text: &str| {
            let error = redis::parse_redis_value(text.as_bytes()).and_then(Value::extract_error).unwrap_err();
            refused("h:1", &error)
        };
        for unknown in ["-ERR unknown command 'SENTINEL', with args\r\n", "-ERR unknown command `SENTINEL`\r\n"] {
            assert!(matches!(answered(unknown), Answer::Refused(error) if error.text.contains("is no Sentinel")));
        }
        for other in ["-ERR max number of clients reached\r\n", "-LOADING it loads\r\n"] {
            assert!(matches!(answered(other), Answer::Nothing(text) if text.contains("h:1")), "{other}");
        }
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

//! The embedded server answers as real ones do: one table of commands, one of Lua, and every script of the runtime.
//!
//! All run on both, in both versions of the protocol, with each server that this machine has (7.0 or later). Texts of errors are those of Redis 7; another server is held to
//! the code with which they begin.

use std::time::{Duration, Instant};

use distlock_testkit::{EmbeddedServer, Server, server_or_skip};
use redis::aio::MultiplexedConnection;
use redis::{ProtocolVersion, Value};

const COMMANDS: &str = include_str!("conformance/commands.txt");
const SCRIPTS: &str = include_str!("conformance/scripts.txt");

const ACQUIRE: &str = concat!(
    include_str!("../../distlock-runtime/src/store/redis/lua/queue.lua"),
    include_str!("../../distlock-runtime/src/store/redis/lua/acquire.lua")
);
const TAKE: &str = include_str!("../../distlock-runtime/src/store/redis/lua/take.lua");
const RENEW: &str = include_str!("../../distlock-runtime/src/store/redis/lua/renew.lua");
const RELEASE: &str = concat!(
    include_str!("../../distlock-runtime/src/store/redis/lua/queue.lua"),
    include_str!("../../distlock-runtime/src/store/redis/lua/release.lua")
);

const A: &str = "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa";
const B: &str = "bbbbbbbb-bbbb-4bbb-8bbb-bbbbbbbbbbbb";

/// How an answer is compared.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mask {
    Exact,
    Shape,
    Unordered,
    /// As exact, and not asked of servers other than Redis 7.
    OnlySeven,
}

/// One line of a conversation.
#[derive(Clone, Debug)]
enum Step {
    Ask(Vec<String>, Mask),
    AwaitGone(String),
    Fresh,
}

fn ask(parts: &[&str]) -> Step {
    Step::Ask(parts.iter().map(|part| (*part).to_owned()).collect(), Mask::Exact)
}

/// For answers with a time or an expiry in them.
fn shape(parts: &[&str]) -> Step {
    Step::Ask(parts.iter().map(|part| (*part).to_owned()).collect(), Mask::Shape)
}

/// Reads the table of commands.
fn steps(table: &str) -> Vec<Step> {
    let step = |line: &str| match line.as_bytes() {
        [] => Some(Step::Fresh),
        [b'#', ..] => None,
        [b'~', b' ', ..] => Some(Step::Ask(words(&line[2..]), Mask::Shape)),
        [b'?', b' ', ..] => Some(Step::Ask(words(&line[2..]), Mask::Unordered)),
        [b'7', b' ', ..] => Some(Step::Ask(words(&line[2..]), Mask::OnlySeven)),
        [b'@', b' ', ..] => Some(Step::AwaitGone(line[2..].to_owned())),
        _ => Some(Step::Ask(words(line), Mask::Exact)),
    };
    table.lines().filter_map(step).collect()
}

fn words(line: &str) -> Vec<String> {
    let (mut words, mut rest) = (Vec::new(), line);
    while !rest.is_empty() {
        let (word, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').expect("a closing quote"),
            None => rest.split_once(' ').map_or((rest, ""), |(word, _)| (word, &rest[word.len()..])),
        };
        words.push(word.replace("\\n", "\n"));
        rest = after.trim_start_matches(' ');
    }
    words
}

/// A server that is talked to.
struct Peer {
    connection: MultiplexedConnection,
    /// Errors are compared by their codes alone.
    codes_only: bool,
}

impl Peer {
    async fn connect(port: u16, protocol: ProtocolVersion, codes_only: bool) -> Self {
        let version = if protocol == ProtocolVersion::RESP3 { "resp3" } else { "resp2" };
        let client = redis::Client::open(format!("redis://127.0.0.1:{port}?protocol={version}")).unwrap();
        Self { connection: client.get_multiplexed_async_connection().await.unwrap(), codes_only }
    }

    async fn ask(&mut self, parts: &[String], mask: Mask) -> String {
        let answer = redis::cmd(&parts[0]).arg(&parts[1..]).query_async(&mut self.connection).await;
        match answer {
            Ok(value) => shown(&value, mask),
            Err(error) if self.codes_only => format!("error {}", error.code().unwrap_or("?")),
            Err(error) => format!("error {} {}", error.code().unwrap_or("?"), error.detail().unwrap_or_default()),
        }
    }

    async fn take(&mut self, step: &Step) -> String {
        match step {
            Step::Ask(_, Mask::OnlySeven) if self.codes_only => String::new(),
            Step::Ask(parts, mask) => self.ask(parts, *mask).await,
            Step::Fresh => self.ask(&["FLUSHALL".to_owned()], Mask::Exact).await,
            Step::AwaitGone(key) => {
                let until = Instant::now() + Duration::from_secs(10);
                while self.ask(&["EXISTS".to_owned(), key.clone()], Mask::Exact).await != "0" {
                    assert!(Instant::now() < until, "`{key}` is still there after 10 s");
                }
                String::new()
            }
        }
    }
}

fn shown(value: &Value, mask: Mask) -> String {
    let masked = |text: &str| {
        let mut shape = String::new();
        for character in text.chars() {
            match character {
                '0'..='9' if shape.ends_with('#') => {}
                '0'..='9' => shape.push('#'),
                _ => shape.push(character),
            }
        }
        shape
    };
    match (value, mask) {
        (Value::Array(parts), Mask::Unordered) => {
            let mut parts: Vec<_> = parts.iter().map(|part| shown(part, Mask::Exact)).collect();
            parts.sort();
            format!("{parts:?}")
        }
        (Value::Array(parts), _) => {
            format!("[{}]", parts.iter().map(|part| shown(part, mask)).collect::<Vec<_>>().join(", "))
        }
        (Value::BulkString(bytes), Mask::Shape) => masked(&format!("{:?}", String::from_utf8_lossy(bytes))),
        (Value::BulkString(bytes), _) => format!("{:?}", String::from_utf8_lossy(bytes)),
        (Value::Int(number), Mask::Shape) => masked(&number.to_string()),
        (Value::Int(number), _) => number.to_string(),
        _ => format!("{value:?}"),
    }
}

/// Has the same conversation with both, in both protocols, and lists where they differ.
async fn compare(real: &Server, steps: &[Step]) {
    let embedded = EmbeddedServer::new();
    let port = embedded.serve_tcp().await.unwrap().port();
    let info = real.command(&["INFO", "server"]).unwrap();
    let info = info.as_text().unwrap();
    let codes_only = info.contains("valkey_version") || !info.contains("redis_version:7.");
    let mut differences = Vec::new();
    for protocol in [ProtocolVersion::RESP2, ProtocolVersion::RESP3] {
        let mut theirs = Peer::connect(real.port(), protocol, codes_only).await;
        let mut ours = Peer::connect(port, protocol, codes_only).await;
        for peer in [&mut theirs, &mut ours] {
            peer.take(&ask(&["SCRIPT", "FLUSH"])).await;
            peer.take(&Step::Fresh).await;
        }
        for step in steps {
            let (expected, given) = (theirs.take(step).await, ours.take(step).await);
            if expected != given {
                differences.push(format!("{protocol:?} {step:?}\n    real      {expected}\n    embedded  {given}"));
            }
        }
    }
    assert!(differences.is_empty(), "{} differ:\n{}", differences.len(), differences.join("\n"));
}

/// Compares with every kind of server on this machine.
async fn compare_with_all(steps: &[Step]) {
    for program in Server::all_available() {
        let server = Server::builder().program(&program).spawn().unwrap();
        eprintln!("compared with {}", program.display());
        compare(&server, steps).await;
    }
}

#[tokio::test]
async fn commands_are_answered_as_by_real_servers() {
    drop(server_or_skip!());
    let steps = steps(COMMANDS);
    assert!(steps.iter().filter(|step| matches!(step, Step::Ask(..))).count() >= 120);
    compare_with_all(&steps).await;
}

#[tokio::test]
async fn lua_is_run_as_by_real_servers() {
    drop(server_or_skip!());
    let mut steps = Vec::new();
    for script in SCRIPTS.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        steps.push(ask(&["DEL", "list", "h", "z", "new", "n"]));
        steps.push(ask(&["RPUSH", "list", "a", "b"]));
        steps.push(ask(&["SET", "text", "words"]));
        steps.push(ask(&["SET", "number", "41"]));
        let (script, mask) = match script.strip_prefix("7 ") {
            Some(script) => (script, Mask::OnlySeven),
            None => (script, Mask::Exact),
        };
        let parts = ["EVAL", script, "2", "first", "second", "one", "two"];
        steps.push(Step::Ask(parts.map(str::to_owned).to_vec(), mask));
    }
    steps.push(ask(&["EVAL", "\n\nreturn redis.call('GET', 'list')", "0"]));
    steps.push(ask(&["EVAL", "#!lua flags=no-writes\n\nreturn redis.call('GET', 'list')", "0"]));
    steps.push(ask(&["EVAL", "return {err = 'two\\nlines'}", "0"]));
    compare_with_all(&steps).await;
}

// The keys that the runtime's scripts use.
const QUEUE: &str = "{k}:queue";
const WAITERS: &str = "{k}:waiters";
const FENCE: &str = "{k}:fence";

fn gone(token: &str) -> String {
    format!("{{k}}:gone:{token}")
}

fn acquire(token: &str, expiry: &str) -> Step {
    shape(&["EVAL", ACQUIRE, "5", "k", QUEUE, WAITERS, &gone(token), FENCE, token, expiry, "host/1 f", "1"])
}

/// As [`acquire`], and stands in line.
fn wait(token: &str, life: &str, ticket: &str, channel: &str) -> Step {
    let keys = ["k", QUEUE, WAITERS, &gone(token), FENCE];
    shape(&[&["EVAL", ACQUIRE, "5"], &keys[..], &[token, "10000", "host/1 f", "1", life, ticket, channel]].concat())
}

/// Two keys, each for a token of its own.
fn take(tokens: [&str; 2], wishes: &[&str]) -> Step {
    let [a, b] = tokens.map(gone);
    let keys = ["k", QUEUE, &a, "l", "{l}:queue", &b, FENCE];
    shape(&[&["EVAL", TAKE, "7"], &keys[..], &tokens, wishes].concat())
}

/// Both keys or none.
fn acquire_two(token: &str) -> Step {
    let keys = [
        "k",
        QUEUE,
        WAITERS,
        &gone(token),
        FENCE,
        "l",
        "{l}:queue",
        "{l}:waiters",
        &format!("{{l}}:gone:{token}"),
        FENCE,
    ];
    shape(&[&["EVAL", ACQUIRE, "10"], &keys[..], &[token, "10000", "host/1 f", "8"]].concat())
}

fn release(token: &str, keep: &str, bury: &str) -> Step {
    ask(&["EVAL", RELEASE, "4", "k", QUEUE, WAITERS, &gone(token), token, keep, bury])
}

fn renew(pairs: &[(&str, &str)], keys: &[&str]) -> Step {
    let count = keys.len().to_string();
    let mut parts = vec!["EVAL", RENEW, &count];
    parts.extend(keys);
    parts.extend(pairs.iter().flat_map(|(token, expiry)| [*token, *expiry]));
    ask(&parts)
}

/// All that is stored: types, values with their numbers masked, expiries in steps of five seconds, and whether the
/// key's fencing token is the last one given.
fn look() -> Step {
    const LOOK: &str = "
        local seen = {}
        for i, key in ipairs(KEYS) do
          local value = redis.pcall('GET', key)
          value = value and (value.err or string.gsub(value, '%d%d%d+', '#')) or '-'
          local left = redis.call('PTTL', key)
          if left > 0 then left = math.ceil(left / 5000) * 5 end
          seen[i] = key .. ' ' .. redis.call('TYPE', key).ok .. ' ' .. left .. ' ' .. value
        end
        local held, last = redis.pcall('GET', 'k'), redis.pcall('GET', '{k}:fence')
        if type(held) == 'string' and string.match(held, '^%S+ (%d+)') == last then seen[#seen + 1] = 'last' end
        seen[#seen + 1] = redis.call('DBSIZE')
        return seen";
    ask(&["EVAL", LOOK, "7", "k", FENCE, &gone(A), &gone(B), QUEUE, WAITERS, "l"])
}

/// Everything that can be in the way of a lock script.
fn obstacles() -> Vec<Vec<Step>> {
    vec![
        vec![],
        vec![acquire(A, "10000")],
        vec![acquire(B, "10000")],
        vec![acquire(A, "10000"), release(A, "0", "0")],
        vec![acquire(A, "10000"), release(A, "5000", "0")],
        vec![acquire(A, "10000"), release(A, "5000", "60000")],
        vec![release(A, "0", "60000")],
        vec![release(A, "0", "1"), Step::AwaitGone(gone(A))],
        vec![acquire(A, "1"), Step::AwaitGone("k".to_owned())],
        vec![ask(&["SET", "k", "somebody else's"])],
        vec![ask(&["SET", "k", "somebody else's", "PX", "60000"])],
        vec![ask(&["SET", "k", ""])],
        vec![ask(&["SET", "k", A])],
        vec![ask(&["SET", "k", A, "PX", "60000"])],
        vec![ask(&["RPUSH", "k", "x"])],
        vec![ask(&["HSET", "k", "f", "v"])],
        vec![ask(&["SET", "{k}:fence", "17"])],
        vec![ask(&["SET", "{k}:fence", "9007199254740990"])],
        vec![ask(&["SET", "{k}:fence", "9007199254740991"])],
        vec![ask(&["SET", "{k}:fence", "-1"])],
        vec![ask(&["SET", "{k}:fence", "1.5"])],
        vec![ask(&["SET", "{k}:fence", "words"])],
        vec![ask(&["SET", "{k}:fence", ""])],
        vec![ask(&["RPUSH", "{k}:fence", "x"])],
        vec![ask(&["RPUSH", &gone(A), "x"])],
        vec![acquire(A, "10000"), wait(B, "60000", "0", "-")],
        vec![acquire(B, "10000"), wait(A, "60000", "0", "-"), release(B, "0", "0")],
        vec![acquire(B, "10000"), wait(A, "60000", "0", "nobody"), release(B, "0", "0")],
        vec![acquire(B, "10000"), wait(A, "1", "0", "-"), Step::AwaitGone(QUEUE.to_owned())],
        vec![ask(&["ZADD", QUEUE, "1", "garbage"])],
        vec![ask(&["ZADD", QUEUE, "1", "garbage"]), ask(&["HSET", WAITERS, "garbage", "x"])],
        vec![ask(&["RPUSH", QUEUE, "x"])],
        vec![ask(&["ZADD", QUEUE, "1", A]), ask(&["RPUSH", WAITERS, "x"])],
        vec![ask(&["SET", "l", "somebody else's", "PX", "60000"])],
    ]
}

/// Each script in each of these situations, twice in a row, then the others.
#[tokio::test]
async fn the_runtime_s_scripts_give_what_they_give_on_real_servers() {
    drop(server_or_skip!());
    let attempts = [
        acquire(A, "10000"),
        acquire(A, "20000"),
        acquire(A, "500"),
        acquire(A, "0"),
        acquire(A, "-1"),
        acquire(A, "x"),
        wait(A, "60000", "0", "-"),
        wait(A, "60000", "0", "nobody"),
        wait(A, "60000", "7", "-"),
        wait(A, "x", "y", "z"),
        acquire_two(A),
        take([A, B], &["10000", "host/1 f"]),
        take([A, B], &["10000", "host/1 f", "20000", "host/1 g"]),
        take([A, A], &["10000", "host/1 f"]),
        release(A, "0", "0"),
        release(A, "0", "60000"),
        release(A, "5000", "0"),
        release(A, "5000", "60000"),
        release(A, "x", "0"),
        release(A, "0", "x"),
        release(B, "0", "0"),
        ask(&["EVAL", RELEASE, "3", "k", QUEUE, WAITERS, A]),
        ask(&["EVAL", RELEASE, "3", "k", QUEUE, WAITERS, B]),
        ask(&["EVAL", RELEASE, "6", "k", QUEUE, WAITERS, "l", "{l}:queue", "{l}:waiters", A, A]),
        renew(&[(A, "10000")], &["k"]),
        renew(&[(A, "20000")], &["k"]),
        renew(&[(A, "500")], &["k"]),
        renew(&[(B, "10000")], &["k"]),
        renew(&[(A, "x")], &["k"]),
        renew(&[(A, "10000"), (A, "10000"), (B, "10000")], &["k", "absent", "{k}:fence"]),
        renew(&[], &[]),
        ask(&["EVAL", TAKE, "1", FENCE]),
        ask(&["EVAL", ACQUIRE, "0"]),
        shape(&["EVAL", ACQUIRE, "5", "k", QUEUE, WAITERS, "g", FENCE]),
        ask(&["EVAL", RELEASE, "0"]),
        ask(&["EVAL", RENEW, "1", "k"]),
    ];
    let mut steps = Vec::new();
    for obstacle in obstacles() {
        for attempt in &attempts {
            steps.push(Step::Fresh);
            steps.extend(obstacle.clone());
            steps.extend([attempt.clone(), look(), attempt.clone(), look(), acquire(B, "10000"), look()]);
        }
    }
    compare_with_all(&steps).await;
}

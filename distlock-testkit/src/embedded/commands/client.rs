//! Connections: the greeting, the login, `CLIENT` and the good-bye.

use super::{Call, Failure, Outcome, Spec, integer, is, server};
use crate::embedded::data::Bytes;
use crate::wire::{Answer, Protocol};

pub(super) const SPECS: &[Spec] = &[
    Spec::outside("hello", -1, hello).open(),
    Spec::outside("auth", -2, auth).open(),
    Spec::outside("client", -2, client),
    Spec::outside("quit", -1, |call, _| {
        if let Some(client) = call.core.clients.get_mut(&call.client) {
            client.is_leaving = true;
        }
        Ok(Answer::OK)
    })
    .open()
    .subscribed(),
];

const WRONG_PASS: Failure = Failure::of("WRONGPASS invalid username-password pair or user is disabled.");

fn hello(call: &mut Call<'_>, parts: &[Bytes]) -> Outcome {
    let protocol = match parts.get(1) {
        None => None,
        Some(version) => match integer(version) {
            Ok(2) => Some(Protocol::Resp2),
            Ok(3) => Some(Protocol::Resp3),
            Ok(_) => return Err(Failure::of("NOPROTO unsupported protocol version")),
            Err(_) => return Err(Failure::of("ERR Protocol version is not an integer or out of range")),
        },
    };
    let (mut name, mut words) = (None, parts.iter().skip(2));
    while let Some(word) = words.next() {
        let wrong = || Failure(format!("ERR Syntax error in HELLO option '{}'", String::from_utf8_lossy(word)).into());
        if is(word, "auth") {
            let (Some(user), Some(password)) = (words.next(), words.next()) else { return Err(wrong()) };
            log_in(call, user, password)?;
        } else if is(word, "setname") {
            name = Some(words.next().ok_or_else(wrong)?.clone());
        } else {
            return Err(wrong());
        }
    }
    let needs_login = call.core.password.is_some();
    let id = call.client;
    let Some(client) = call.core.clients.get_mut(&id) else { return Ok(Answer::Nil) };
    if needs_login && !client.logged_in {
        return Err(Failure::of(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time",
        ));
    }
    if let Some(name) = name {
        client.name = checked(name)?;
    }
    if let Some(protocol) = protocol {
        client.protocol = protocol;
    }
    let version = if client.protocol == Protocol::Resp3 { 3 } else { 2 };
    let pairs = [
        ("server", Answer::bulk("redis")),
        ("version", Answer::bulk(server::VERSION)),
        ("proto", Answer::Int(version)),
        ("id", Answer::Int(i64::try_from(id).unwrap_or(i64::MAX))),
        ("mode", Answer::bulk("standalone")),
        ("role", Answer::bulk("master")),
        ("modules", Answer::List(Vec::new())),
    ];
    Ok(Answer::Map(pairs.into_iter().map(|(key, value)| (Answer::bulk(key), value)).collect()))
}

fn auth(call: &mut Call<'_>, parts: &[Bytes]) -> Outcome {
    match parts {
        [_, _] if call.core.password.is_none() => Err(Failure::of(
            "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?",
        )),
        [_, password] => log_in(call, b"default", password),
        [_, user, password] => log_in(call, user, password),
        _ => Err(Failure::SYNTAX),
    }?;
    Ok(Answer::OK)
}

fn log_in(call: &mut Call<'_>, user: &[u8], password: &[u8]) -> Result<(), Failure> {
    // A server without a password takes any.
    let fits = call.core.password.as_ref().is_none_or(|it| it.as_bytes() == password);
    if user != b"default" || !fits {
        return Err(WRONG_PASS);
    }
    if let Some(client) = call.core.clients.get_mut(&call.client) {
        client.logged_in = true;
    }
    Ok(())
}

fn checked(name: Bytes) -> Result<Bytes, Failure> {
    if name.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        Ok(name)
    } else {
        Err(Failure::of("ERR Client names cannot contain spaces, newlines or special characters."))
    }
}

fn client(call: &mut Call<'_>, parts: &[Bytes]) -> Outcome {
    let (name, rest) = (&parts[1], &parts[2..]);
    let id = call.client;
    let known = ["id", "getname", "setname", "setinfo", "kill"].into_iter().find(|it| is(name, it));
    match (known, rest) {
        (Some("id"), []) => Ok(Answer::Int(i64::try_from(id).unwrap_or(i64::MAX))),
        (Some("getname"), []) => {
            let name = call.core.clients.get(&id).map(|client| client.name.clone());
            Ok(Answer::optional(name.filter(|name| !name.is_empty())))
        }
        (Some("setname"), [name]) => {
            let name = checked(name.clone())?;
            if let Some(client) = call.core.clients.get_mut(&id) {
                client.name = name;
            }
            Ok(Answer::OK)
        }
        // Later than 7.0, and sent by clients at each connect.
        (Some("setinfo"), [attribute, _]) if is(attribute, "lib-name") || is(attribute, "lib-ver") => Ok(Answer::OK),
        (Some("setinfo"), [attribute, _]) => {
            Err(Failure(format!("ERR Unrecognized option '{}'", String::from_utf8_lossy(attribute)).into()))
        }
        (Some("kill"), filters @ [_, _, ..]) => kill(call, filters),
        (Some("kill"), [_]) => Err(Failure::of("ERR No such client")),
        (Some(known), _) => Err(Failure::arity(&format!("client|{known}"))),
        (None, _) => Err(Failure::subcommand("CLIENT", name)),
    }
}

/// `ID n`, `TYPE normal|pubsub` and `SKIPME yes|no`, in any number; says how many connections have been ended.
fn kill(call: &mut Call<'_>, filters: &[Bytes]) -> Outcome {
    let (mut id, mut subscribers, mut spares_me) = (None, None, true);
    if !filters.len().is_multiple_of(2) {
        return Err(Failure::SYNTAX);
    }
    for pair in filters.chunks_exact(2) {
        let value = &pair[1];
        match &pair[0] {
            word if is(word, "id") => {
                let number = integer(value).ok().and_then(|number| u64::try_from(number).ok());
                id = Some(
                    number.filter(|number| *number > 0).ok_or(Failure::of("ERR client-id should be greater than 0"))?,
                );
            }
            word if is(word, "type") => {
                subscribers = Some(match value {
                    kind if is(kind, "normal") => false,
                    kind if is(kind, "pubsub") => true,
                    kind => {
                        return Err(Failure(
                            format!("ERR Unknown client type '{}'", String::from_utf8_lossy(kind)).into(),
                        ));
                    }
                });
            }
            word if is(word, "skipme") && is(value, "yes") => spares_me = true,
            word if is(word, "skipme") && is(value, "no") => spares_me = false,
            _ => return Err(Failure::SYNTAX),
        }
    }
    let mut killed = 0;
    for (number, client) in &mut call.core.clients {
        let is_me = *number == call.client;
        let is_meant = id.is_none_or(|id| id == *number)
            && subscribers.is_none_or(|subscribers| subscribers == client.is_subscribed())
            && *number != crate::embedded::core::DIRECT
            && !(is_me && spares_me);
        if is_meant {
            killed += 1;
            if is_me {
                client.is_leaving = true; // it gets its answer
            } else {
                client.cut();
            }
        }
    }
    Ok(Answer::Int(killed))
}

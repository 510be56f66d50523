//! The Lua scripts, and how one is run: EVALSHA, and one EVAL when the server does not know it yet.
//!
//! The scripts are constants; everything variable goes through KEYS and ARGV. Nothing is loaded ahead, so a flushed
//! script cache or a new server costs one more trip and needs no further permission.

use std::sync::OnceLock;
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::time::Instant;

use super::answers::Refusal;
use super::connection::Connection;
use crate::store::{StoreError, StoreErrorKind};

pub(crate) static ACQUIRE: Script =
    Script::new(concat!(include_str!("lua/queue.lua"), include_str!("lua/acquire.lua")));
pub(crate) static TAKE: Script = Script::new(include_str!("lua/take.lua"));
pub(crate) static VOTE: Script =
    Script::new(concat!(include_str!("lua/epoch.lua"), include_str!("lua/queue.lua"), include_str!("lua/vote.lua")));
pub(crate) static BOOTSTRAP: Script =
    Script::new(concat!(include_str!("lua/epoch.lua"), include_str!("lua/bootstrap.lua")));
pub(crate) static REMEMBERS: Script =
    Script::new(concat!(include_str!("lua/epoch.lua"), include_str!("lua/remembers.lua")));
pub(crate) static HEAL: Script = Script::new(concat!(include_str!("lua/epoch.lua"), include_str!("lua/heal.lua")));
pub(crate) static ACK: Script = Script::new(include_str!("lua/ack.lua"));
pub(crate) static RENEW: Script = Script::new(include_str!("lua/renew.lua"));
pub(crate) static RELEASE: Script =
    Script::new(concat!(include_str!("lua/queue.lua"), include_str!("lua/release.lua")));

pub(crate) struct Script {
    source: &'static str,
    /// SHA-1 of the source, by which the server knows it.
    sha: OnceLock<String>,
}

/// In which form a script is sent first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// By its hash: short, and asked for whole by a server that does not know it.
    Known,
    /// Whole: longer, and executed without a question.
    Whole,
    /// As `Known`, and let in by a node that the slot is on its way to.
    #[cfg(feature = "cluster")]
    Asking,
}

impl Form {
    async fn send(self, connection: &Connection, command: &Cmd, limit: Duration) -> Result<Value, Refusal> {
        match self {
            Self::Known | Self::Whole => connection.send(command, limit).await,
            #[cfg(feature = "cluster")]
            Self::Asking => connection.send_asking(command, limit).await,
        }
    }
}

impl Script {
    const fn new(source: &'static str) -> Self {
        Self { source, sha: OnceLock::new() }
    }

    fn sha(&self) -> &str {
        self.sha.get_or_init(|| redis::Script::new(self.source).get_hash().to_owned())
    }

    /// The command that runs the script without a question.
    pub(crate) fn whole(&self, keys: usize, keys_and_args: impl Fn(&mut Cmd)) -> Cmd {
        command("EVAL", self.source, keys, keys_and_args)
    }

    /// The command that runs a script that the server may know.
    #[cfg(feature = "cluster")]
    pub(crate) fn known(&self, keys: usize, keys_and_args: impl Fn(&mut Cmd)) -> Cmd {
        command("EVALSHA", self.sha(), keys, keys_and_args)
    }

    /// Runs the script within `limit`. `keys_and_args` adds the KEYS, then the ARGV.
    pub(crate) async fn run(
        &self,
        connection: &Connection,
        form: Form,
        limit: Duration,
        keys: usize,
        keys_and_args: impl Fn(&mut Cmd),
    ) -> Result<Value, StoreError> {
        let begun = Instant::now();
        if form != Form::Whole {
            match form.send(connection, &command("EVALSHA", self.sha(), keys, &keys_and_args), limit).await {
                Ok(value) => return Ok(value),
                Err(Refusal::Failed(error)) => return Err(error),
                Err(Refusal::NoScript) => {}
            }
        }
        let left = limit.saturating_sub(begun.elapsed());
        match form.send(connection, &self.whole(keys, &keys_and_args), left).await {
            Ok(value) => Ok(value),
            Err(Refusal::Failed(error)) => Err(error),
            Err(Refusal::NoScript) => {
                Err(StoreError::new(StoreErrorKind::Config, format!("{} does not run scripts", connection.address())))
            }
        }
    }
}

fn command(name: &str, script: &str, keys: usize, keys_and_args: impl Fn(&mut Cmd)) -> Cmd {
    // Room for what nearly every script takes, so that the command does not grow step by step.
    let mut command = Cmd::with_capacity(6 + keys * 2, script.len() + 64 + keys * 96);
    command.arg(name).arg(script).arg(keys);
    keys_and_args(&mut command);
    command
}

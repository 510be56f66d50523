//! What every line needs: a server of its own, a runtime, and the length of its rounds.

use std::time::Duration;

use distlock_testkit::{Connection, Reply, Server};
use tokio::runtime::{Builder, Runtime};

use crate::Result;
use crate::place::Cores;

#[derive(Clone, Debug)]
pub(crate) struct Bench {
    pub(crate) quick: bool,
    pub(crate) cores: Cores,
}

impl Bench {
    /// A fresh server, on its core.
    pub(crate) fn server(&self) -> Result<Server> {
        let server = Server::spawn()?;
        if let Some(pid) = server.pid() {
            self.cores.pin_server(pid)?;
        }
        Ok(server)
    }

    /// As a service has it: one worker thread for each core of the clients.
    pub(crate) fn runtime(&self) -> Result<Runtime> {
        Ok(Builder::new_multi_thread().worker_threads(self.cores.clients.len().max(1)).enable_all().build()?)
    }

    /// How often or how long, in a whole run and in a quick one.
    pub(crate) fn pick<T>(&self, whole: T, quick: T) -> T {
        if self.quick { quick } else { whole }
    }
}

/// How many commands clients have sent that take or give back locks, as the server counts them. What scripts call inside
/// is not sent.
pub(crate) fn commands_sent(server: &Server) -> Result<u64> {
    let reply = server.command(&["INFO", "commandstats"])?;
    let text = reply.as_text().unwrap_or_default();
    Ok(text.lines().filter_map(calls_of_a_command_of_ours).sum())
}

fn calls_of_a_command_of_ours(line: &str) -> Option<u64> {
    let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
    let ours = ["eval", "evalsha", "subscribe", "ping", "hello"].contains(&name);
    ours.then(|| rest.split(',').next()?.parse().ok())?
}

/// The round trip of `PING`s on a connection of their own, in microseconds: what the network and the server cost anybody.
pub(crate) fn ping_on(connection: &mut Connection, times: usize) -> Result<Vec<f64>> {
    let mut micros = Vec::with_capacity(times);
    for _ in 0..times {
        let begun = std::time::Instant::now();
        let _: Reply = connection.command(&["PING"])?;
        micros.push(micros_of(begun.elapsed()));
    }
    Ok(micros)
}

pub(crate) fn micros_of(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

pub(crate) fn millis_of(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_clients_send_is_counted() {
        let line = |name: &str| format!("cmdstat_{name}:calls=12,usec=3,usec_per_call=0.25,rejected_calls=0");
        assert_eq!(calls_of_a_command_of_ours(&line("evalsha")), Some(12));
        for inside in ["set", "del", "publish", "client|setinfo"] {
            assert_eq!(calls_of_a_command_of_ours(&line(inside)), None);
        }
    }
}

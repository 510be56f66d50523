//! A real lock server of one's own: a private process on a free port with a folder of its own, ended with its handle.

use std::ffi::OsString;
use std::fs::{self, File};
use std::hash::{BuildHasher as _, RandomState};
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

#[cfg(feature = "tls")]
use crate::Certificates;
use crate::monitor::{Own, disown};
use crate::reaper::Reaper;
use crate::{Connection, Error, Folder, Missing, Monitor, Reply, Result, binary};

/// A server that is not ready after this long will not be.
const READY_WITHIN: Duration = Duration::from_secs(20);

/// How often a starting server is asked whether it is ready; it takes about 20 ms.
const ASK_EVERY: Duration = Duration::from_millis(2);

/// Below the range from which systems take the ports of outgoing connections: there a client that reconnects to a
/// killed server could be given the server's own port, and the server could not come back.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// Those of them for nodes of a cluster, which have a second one.
const CLUSTER_PORTS: std::ops::Range<u16> = PORTS.start..PORTS.start + (PORTS.end - PORTS.start) / 6;

/// How far above its port a node of a cluster listens for the other nodes.
const CLUSTER_BUS: u16 = 10_000;

/// How many other ports are tried when a chosen one is snatched away.
const TRIES: u32 = 50;

/// How to start a server; made by [`Server::builder`].
#[derive(Clone, Debug, Default)]
#[must_use = "a builder starts nothing until `spawn`"]
pub struct Builder {
    args: Vec<OsString>,
    password: Option<String>,
    append_only: bool,
    unix_socket: bool,
    /// It is a node of a cluster, and needs a second port for the others.
    in_cluster: bool,
    program: Option<PathBuf>,
    sentinel: Option<String>,
    #[cfg(feature = "tls")]
    tls: Option<Tls>,
}

/// How a server shows who it is, and whether its clients have to.
#[cfg(feature = "tls")]
#[derive(Clone, Debug)]
struct Tls {
    certificates: Certificates,
    clients_are_asked: bool,
}

impl Builder {
    /// Adds a setting, as in `.setting("maxmemory", "8mb")`.
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.args.push(format!("--{name}").into());
        self.args.push(value.into());
        self
    }

    /// Makes clients give a password; it is in [`Server::url`], and [`Server::command`] knows it.
    ///
    /// It stands in the URL as it is: use letters and digits.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self.setting("requirepass", password)
    }

    /// Makes the server keep its data through [`Server::kill`]. Without it a killed server comes back empty.
    pub fn append_only(mut self) -> Self {
        self.append_only = true;
        self
    }

    /// Makes the server listen at a unix socket as well: [`Server::unix_socket`].
    pub fn unix_socket(mut self) -> Self {
        self.unix_socket = true;
        self
    }

    /// Makes the server listen for encrypted connections as well: [`Server::tls_url`].
    #[cfg(feature = "tls")]
    pub fn tls(mut self, certificates: &Certificates) -> Self {
        self.tls = Some(Tls { certificates: certificates.clone(), clients_are_asked: false });
        self
    }

    /// As [`tls`](Self::tls), and encrypted connections without a certificate of the authority are refused.
    #[cfg(feature = "tls")]
    pub fn mutual_tls(mut self, certificates: &Certificates) -> Self {
        self.tls = Some(Tls { certificates: certificates.clone(), clients_are_asked: true });
        self
    }

    /// Runs this program instead of the one that [`Server::available`] finds.
    pub fn program(mut self, path: impl Into<PathBuf>) -> Self {
        self.program = Some(path.into());
        self
    }

    /// Makes it a Sentinel with this configuration, which it rewrites as it learns.
    pub(crate) fn sentinel(mut self, configuration: String) -> Self {
        self.sentinel = Some(configuration);
        self
    }

    /// Starts the server and waits until it answers.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`] when there is none on this machine; [`Error::NotReady`] with the server's own words when it
    /// does not come up; [`Error::Io`] when the system refuses a process, a folder or a port.
    pub fn spawn(self) -> Result<Server> {
        let ports = if self.in_cluster { free_ports_in_cluster } else { free_port };
        self.spawn_at(ports)
    }

    /// Makes it a node of a cluster; see [`Cluster`](crate::Cluster).
    pub(crate) fn in_cluster(mut self) -> Self {
        self.in_cluster = true;
        self.setting("cluster-enabled", "yes")
    }

    /// Starts the server at the first of these ports that is not snatched away in the meantime.
    fn spawn_at(self, mut ports: impl FnMut() -> Result<u16>) -> Result<Server> {
        let program = self.program.clone().map_or_else(binary::find, Ok)?;
        let folder = Folder::new().map_err(Error::io("make a folder for the server"))?;
        let reaper = Reaper::start(folder.path()).map_err(Error::io("start `/bin/sh`"))?;
        let mut server = Server {
            builder: self,
            program,
            port: 0,
            tls_port: 0,
            state: Mutex::default(),
            own: Own::default(),
            reaper,
            folder,
        };
        let mut last = None;
        for _ in 0..TRIES {
            server.port = ports()?;
            #[cfg(feature = "tls")]
            server.lay_out_certificates()?;
            match server.start() {
                Ok(()) => return Ok(server),
                #[cfg(feature = "tls")]
                Err(_) if server.has_no_tls() => return Err(crate::Missing::tls_in(&server.program).into()),
                Err(error) if server.lost_the_port() => last = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(last.unwrap_or_else(|| Error::NotReady { log: server.log() }))
    }
}

/// A running server. Dropping the handle kills the process and removes its folder.
///
/// The process does not outlive this one either, however that ends: killed, aborted, or with the server in a `static`.
///
/// All methods take `&self` and block for some milliseconds; share it in an `Arc` among tasks and threads.
#[derive(Debug)]
#[must_use = "the server is killed when this is dropped"]
pub struct Server {
    builder: Builder,
    program: PathBuf,
    port: u16,
    /// Only with certificates.
    #[cfg_attr(not(feature = "tls"), allow(dead_code))]
    tls_port: u16,
    state: Mutex<State>,
    own: Own,
    reaper: Reaper,
    folder: Folder, // dropped last: the server writes into it
}

/// What changes during a server's life.
#[derive(Debug, Default)]
struct State {
    process: Option<Child>,
    paused: bool,
    connection: Option<Connection>,
}

impl Server {
    /// Starts a server without persistence.
    ///
    /// # Errors
    ///
    /// As [`Builder::spawn`].
    pub fn spawn() -> Result<Self> {
        Self::builder().spawn()
    }

    /// Starts `count` servers that know nothing of each other, as Redlock wants them.
    ///
    /// # Errors
    ///
    /// As [`Builder::spawn`].
    pub fn spawn_many(count: usize) -> Result<Vec<Self>> {
        (0..count).map(|_| Self::spawn()).collect()
    }

    /// For a server with settings of its own.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The program that [`spawn`](Self::spawn) would run: `DISTLOCK_SERVER_BIN`, else `redis-server` or
    /// `valkey-server` on `PATH`.
    ///
    /// # Errors
    ///
    /// [`Missing`], whose text says what to install.
    pub fn available() -> Result<PathBuf, Missing> {
        binary::find()
    }

    /// Every server program on this machine: the one that `DISTLOCK_SERVER_BIN` names, and each kind on `PATH`. For
    /// tests that have to hold on all of them; see [`Builder::program`].
    #[must_use]
    pub fn all_available() -> Vec<PathBuf> {
        binary::find_all()
    }

    /// How clients reach it, as in `redis://127.0.0.1:20123`.
    #[must_use]
    pub fn url(&self) -> String {
        match &self.builder.password {
            Some(password) => format!("redis://:{password}@127.0.0.1:{}", self.port),
            None => format!("redis://127.0.0.1:{}", self.port),
        }
    }

    /// The port on the loopback interface; it stays the same through restarts.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// How clients reach it encrypted, as in `rediss://127.0.0.1:20124`, when the server was built with certificates.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls_url(&self) -> Option<String> {
        let login = self.builder.password.as_ref().map(|password| format!(":{password}@")).unwrap_or_default();
        self.builder.tls.as_ref().map(|_| format!("rediss://{login}127.0.0.1:{}", self.tls_port))
    }

    /// At which port the other nodes of a cluster meet it.
    pub(crate) fn port_among_nodes(&self) -> u16 {
        if self.tls_port == 0 { self.port } else { self.tls_port }
    }

    /// Where the unix socket is, when the server was built with one.
    #[must_use]
    pub fn unix_socket(&self) -> Option<PathBuf> {
        self.builder.unix_socket.then(|| self.folder.path().join("socket"))
    }

    /// The folder in which the server keeps its log and data.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The number of the server's process, `None` while it is killed.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.state().process.as_ref().map(Child::id)
    }

    /// Freezes the server: it accepts connections and buffers commands, and answers nothing until
    /// [`resume`](Self::resume).
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when the server is not running.
    pub fn pause(&self) -> Result<()> {
        let mut state = self.state();
        state.signal(Signal::STOP, "freeze the server")?;
        state.paused = true;
        Ok(())
    }

    /// Ends a [`pause`](Self::pause). The server runs what it has buffered, also from connections closed since.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when the server is not running.
    pub fn resume(&self) -> Result<()> {
        let mut state = self.state();
        state.signal(Signal::CONT, "wake the server")?;
        state.paused = false;
        Ok(())
    }

    /// Kills the server at once, as `kill -9` or a loss of power does. A second call does nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when the system refuses.
    pub fn kill(&self) -> Result<()> {
        let mut state = self.state();
        let State { process, .. } = std::mem::take(&mut *state);
        let Some(mut process) = process else {
            return Ok(());
        };
        let mut end = || {
            process.kill()?;
            // Before the wait, which gives the process number back for use by somebody else.
            self.reaper.forget()?;
            process.wait()
        };
        end().map(drop).map_err(Error::io("kill the server"))
    }

    /// Kills the server and starts it again on the same port with nothing in it: a crash without persistence.
    ///
    /// # Errors
    ///
    /// As [`Builder::spawn`].
    pub fn restart_empty(&self) -> Result<()> {
        self.kill()?;
        self.remove_data()?;
        self.start()
    }

    /// Kills the server and starts it again on the same port with all it had.
    ///
    /// What it had is saved first, which wakes a paused server. A server that is already killed comes back with its
    /// data only if it was built with [`append_only`](Builder::append_only).
    ///
    /// # Errors
    ///
    /// [`Error::NotPersistent`] for a killed server without persistence; else as [`Builder::spawn`].
    pub fn restart_with_data(&self) -> Result<()> {
        if !self.builder.append_only {
            if self.pid().is_none() {
                return Err(Error::NotPersistent);
            }
            if self.is_paused() {
                self.resume()?;
            }
            self.command(&["SAVE"])?;
        }
        self.kill()?;
        self.start()?;
        if !self.builder.append_only {
            // Its content is in memory now; a later restart must not find what is out of date by then.
            self.remove_data()?;
        }
        Ok(())
    }

    /// Runs one command on a connection of the kit's own, behind the library's back.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] for an error answer; [`Error::Io`] when the server is killed or has been frozen for 5 s.
    pub fn command(&self, parts: &[&str]) -> Result<Reply> {
        let mut state = self.state();
        // One connection for all commands, so that `MONITOR` and `CLIENT LIST` show it once. A connection that failed
        // is not used again, for a late answer would be taken for that of the next command.
        let mut connection = match state.connection.take().filter(Connection::is_open) {
            Some(connection) => connection,
            None => self.connect()?,
        };
        let reply = connection.command(parts);
        if matches!(reply, Ok(_) | Err(Error::Refused(_))) {
            state.connection = Some(connection);
        }
        reply
    }

    /// Opens a connection of one's own, for commands that hang or that need a second client.
    ///
    /// [`Monitor`] does not show what is sent on it.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when the server is killed.
    pub fn connect(&self) -> Result<Connection> {
        let connection = Connection::open(self.port, self.builder.password.as_deref())?;
        disown(&self.own, connection.local_addr());
        Ok(connection)
    }

    /// Watches which commands the server is sent from now on.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when the server is killed or frozen.
    pub fn monitor(&self) -> Result<Monitor> {
        Monitor::start(self.connect()?, self.connect()?, Arc::clone(&self.own))
    }

    /// How often a command has been run, by clients and by scripts, since the start or `CONFIG RESETSTAT`.
    ///
    /// # Errors
    ///
    /// As [`command`](Self::command).
    pub fn calls(&self, command: &str) -> Result<u64> {
        let info = self.command(&["INFO", "commandstats"])?;
        let prefix = format!("cmdstat_{}:calls=", command.to_ascii_lowercase());
        let line = info.as_text().unwrap_or_default().lines().find_map(|line| line.strip_prefix(&prefix));
        let digits = line.and_then(|line| line.split(',').next());
        Ok(digits.and_then(|digits| digits.parse().ok()).unwrap_or(0))
    }

    /// What the server has written to its log.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read(self.log_file()).map(|log| String::from_utf8_lossy(&log).into_owned()).unwrap_or_default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A test that panicked has left nothing half done here.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.state().paused
    }

    /// Starts a killed server on the same port with whatever it left behind.
    pub(crate) fn start_again(&self) -> Result<()> {
        self.start()
    }

    fn log_file(&self) -> PathBuf {
        self.folder.path().join("server.log")
    }

    fn lost_the_port(&self) -> bool {
        self.log().contains("Address already in use")
    }

    fn remove_data(&self) -> Result<()> {
        let (snapshot, log) = (self.folder.path().join("dump.rdb"), self.folder.path().join("appendonlydir"));
        // Redis before 7.0 keeps a single file instead of the folder.
        let old_log = self.folder.path().join("appendonly.aof");
        for result in [fs::remove_file(snapshot), fs::remove_file(old_log), fs::remove_dir_all(log)] {
            match result {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Error::io("remove the server's data")(error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Starts the process and waits until it answers; a process that does not is killed.
    fn start(&self) -> Result<()> {
        let process = self.launch().map_err(Error::io(format!("start `{}`", self.program.display())))?;
        let pid = process.id();
        self.state().process = Some(process);
        let ready = self.reaper.watch(pid).map_err(Error::io("watch the server")).and_then(|()| self.wait_ready());
        if ready.is_err() {
            let _ = self.kill();
        }
        ready
    }

    fn launch(&self) -> std::io::Result<Child> {
        // Log and error output in one file: a wrong setting is told only on the latter.
        let log = File::create(self.log_file())?;
        let mut command = Command::new(&self.program);
        if let Some(configuration) = &self.builder.sentinel {
            let file = self.folder.path().join("sentinel.conf");
            if !file.exists() {
                fs::write(&file, configuration)?;
            }
            command.arg(file).arg("--sentinel");
        }
        command
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1", "--daemonize", "no", "--save", ""])
            .args(["--appendonly", if self.builder.append_only { "yes" } else { "no" }])
            .arg("--dir")
            .arg(self.folder.path());
        if let Some(socket) = self.unix_socket() {
            command.arg("--unixsocket").arg(socket);
        }
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.builder.tls {
            command.args(["--tls-port", &self.tls_port.to_string()]);
            command.args([
                "--tls-cert-file",
                "server.pem",
                "--tls-key-file",
                "server.key",
                "--tls-ca-cert-file",
                "ca.pem",
            ]);
            if self.builder.in_cluster {
                command.args(["--tls-cluster", "yes", "--tls-replication", "yes"]);
            }
            command.args(["--tls-auth-clients", if tls.clients_are_asked { "yes" } else { "no" }]);
        }
        command
            .args(&self.builder.args)
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // A Ctrl-C meant for the test would end the server before the test has cleaned up.
            .process_group(0)
            .spawn()
    }

    /// Puts the certificates where the server reads them, and chooses the port.
    #[cfg(feature = "tls")]
    fn lay_out_certificates(&mut self) -> Result<()> {
        let Some(tls) = &self.builder.tls else { return Ok(()) };
        self.tls_port = if self.builder.in_cluster {
            // The bus of the nodes is above this one then.
            free_port_in_cluster_but(self.port)?
        } else {
            free_port_but(self.port)?
        };
        let Certificates { ca, server, .. } = &tls.certificates;
        for (name, text) in [("ca.pem", ca), ("server.pem", &server.cert), ("server.key", &server.key)] {
            fs::write(self.folder.path().join(name), text).map_err(Error::io("write the server's certificates"))?;
        }
        Ok(())
    }

    #[cfg(feature = "tls")]
    fn has_no_tls(&self) -> bool {
        let log = self.log();
        let is_unknown = log.contains("tls-port") && log.contains("Bad directive");
        self.builder.tls.is_some() && (is_unknown || log.contains("Failed finding TLS support"))
    }

    fn wait_ready(&self) -> Result<()> {
        let until = Instant::now() + READY_WITHIN;
        loop {
            let ended = match &mut self.state().process {
                Some(process) => process.try_wait().map_err(Error::io("ask for the server's process"))?.is_some(),
                None => true,
            };
            if !ended && self.answers() {
                return Ok(());
            }
            if ended || Instant::now() > until {
                return Err(Error::NotReady { log: self.log() });
            }
            thread::sleep(ASK_EVERY);
        }
    }

    /// True when the server at the port is ready, and is this one: another that was faster to take the port has
    /// another folder.
    fn answers(&self) -> bool {
        let Ok(mut connection) = self.connect() else {
            return false;
        };
        let pong = connection.command(&["PING"]).is_ok();
        if self.builder.sentinel.is_some() {
            // A Sentinel does not tell its folder.
            let info = connection.command(&["INFO", "server"]).ok();
            let own = format!("process_id:{}", self.pid().unwrap_or_default());
            return pong && info.as_ref().and_then(Reply::as_text).is_some_and(|info| info.lines().any(|it| it == own));
        }
        let folder = connection.command(&["CONFIG", "GET", "dir"]).ok();
        let folder = folder.as_ref().and_then(|reply| reply.as_list()?.get(1)?.as_text());
        pong && folder.is_some_and(|folder| Path::new(folder) == self.folder.path())
    }
}

impl State {
    fn signal(&self, signal: Signal, doing: &str) -> Result<()> {
        let gone = || std::io::Error::new(std::io::ErrorKind::NotFound, "it is not running");
        let pid = self.process.as_ref().map(Pid::from_child);
        let pid = pid.ok_or_else(gone).map_err(Error::io(doing))?;
        kill_process(pid, signal).map_err(|error| Error::io(doing)(error.into()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The reaper, dropped next, kills a server that could not be killed here.
        let _ = self.kill();
    }
}

/// A port nobody listens at. Somebody may take it before the server does: the caller tries again.
fn free_port() -> Result<u16> {
    free_port_in(PORTS, |_| true)
}

/// The same, and not this one, which is free as well.
#[cfg(feature = "tls")]
fn free_port_but(taken: u16) -> Result<u16> {
    free_port_in(PORTS, |port| port != taken)
}

/// The same with one for the other nodes of a cluster, which must stay below the outgoing connections as well.
fn free_ports_in_cluster() -> Result<u16> {
    free_port_in(CLUSTER_PORTS, |port| is_free(port + CLUSTER_BUS))
}

/// The same, and not this one.
#[cfg(feature = "tls")]
fn free_port_in_cluster_but(taken: u16) -> Result<u16> {
    free_port_in(CLUSTER_PORTS, |port| port != taken && is_free(port + CLUSTER_BUS))
}

fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
}

fn free_port_in(ports: std::ops::Range<u16>, fits: impl Fn(u16) -> bool) -> Result<u16> {
    let span = u64::from(ports.end - ports.start);
    let start = RandomState::new().hash_one(std::process::id()) % span;
    (0..span)
        .filter_map(|step| u16::try_from((start + step) % span).ok())
        .map(|offset| ports.start + offset)
        .find(|port| fits(*port) && is_free(*port))
        .ok_or_else(|| Error::io("find a free port")(std::io::ErrorKind::AddrInUse.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server_or_skip;

    #[test]
    fn a_port_that_was_snatched_away_is_left_to_its_owner() {
        let owner = server_or_skip!();
        let mut ports = vec![free_port().unwrap(), owner.port()];
        let server = Server::builder().spawn_at(|| Ok(ports.pop().unwrap())).unwrap();
        assert_ne!(server.port(), owner.port());
        server.command(&["SET", "k", "v"]).unwrap();
        assert!(owner.command(&["GET", "k"]).unwrap().is_nil());
    }
}

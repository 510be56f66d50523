//! The server of the kit: it starts, freezes, dies, comes back, and leaves nothing behind.

use std::collections::HashSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use distlock_testkit::{Error, Reply, Server, server_or_skip, servers_or_skip};

/// Looks until it is so; what is waited for takes milliseconds.
#[track_caller]
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(10);
    while !is_so() {
        assert!(Instant::now() < until, "{what}: not within 10 s");
        thread::sleep(Duration::from_millis(5));
    }
}

/// What the system says about a process, as in `S` or, for a dead one that nobody waited for, `Z`.
fn state_of(pid: u32) -> String {
    if Path::new("/proc/self/stat").exists() {
        // `17 (redis-server) S 1 …`; a slim Linux has no `ps`.
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        return stat.rsplit(") ").next().unwrap_or_default().chars().take(1).collect();
    }
    let status = Command::new("ps").args(["-o", "stat=", "-p", &pid.to_string()]).output().unwrap();
    String::from_utf8_lossy(&status.stdout).trim().to_owned()
}

/// True while there is such a process and it is no zombie.
fn runs(pid: u32) -> bool {
    let state = state_of(pid);
    !state.is_empty() && !state.starts_with('Z')
}

fn text(reply: &str) -> Reply {
    Reply::Text(reply.to_owned())
}

#[test]
fn it_answers_on_a_port_of_its_own_and_leaves_nothing_behind() {
    let server = server_or_skip!();
    assert_eq!(server.url(), format!("redis://127.0.0.1:{}", server.port()));
    assert_ne!(server.port(), 6379);
    assert_eq!(server.command(&["SET", "k", "a b"]).unwrap(), text("OK"));
    assert_eq!(server.command(&["GET", "k"]).unwrap(), text("a b"));
    assert_eq!(server.command(&["DEL", "k", "l"]).unwrap(), Reply::Int(1));
    assert!(server.command(&["GET", "k"]).unwrap().is_nil());
    assert!(matches!(server.command(&["NOPE"]), Err(Error::Refused(_))));

    let (pid, folder) = (server.pid().unwrap(), server.folder().to_owned());
    assert!(runs(pid) && folder.exists());
    drop(server);
    assert_eq!(state_of(pid), "", "not even a zombie");
    assert!(!folder.exists());
}

#[test]
fn many_servers_know_nothing_of_each_other() {
    let servers = servers_or_skip!(5);
    let ports: HashSet<u16> = servers.iter().map(Server::port).collect();
    assert_eq!(ports.len(), 5);
    servers[0].command(&["SET", "k", "v"]).unwrap();
    assert!(servers[1].command(&["GET", "k"]).unwrap().is_nil());
}

#[test]
fn servers_started_at_once_do_not_take_each_others_port() {
    drop(server_or_skip!());
    let ports: Vec<u16> = thread::scope(|scope| {
        let starts: Vec<_> = (0..8).map(|_| scope.spawn(|| Server::spawn().unwrap())).collect();
        let servers: Vec<Server> = starts.into_iter().map(|start| start.join().unwrap()).collect();
        servers.iter().map(Server::port).collect()
    });
    assert_eq!(ports.iter().collect::<HashSet<_>>().len(), 8);
}

#[test]
fn a_paused_server_keeps_what_it_is_sent_for_later() {
    let server = server_or_skip!();
    let mut client = server.connect().unwrap();
    server.pause().unwrap();
    client.send(&["SET", "k", "v"]).unwrap();
    drop(client); // gone before the server has read a byte
    server.resume().unwrap();
    eventually("the buffered command runs", || server.command(&["GET", "k"]).unwrap() == text("v"));
}

#[test]
fn a_paused_server_does_not_answer() {
    let server = server_or_skip!();
    server.pause().unwrap();
    assert!(matches!(server.command(&["PING"]), Err(Error::Io { .. })));
    server.resume().unwrap();
    // The late PONG must not be taken for the answer to this one.
    assert_eq!(server.command(&["ECHO", "me"]).unwrap(), text("me"));
}

#[test]
fn a_paused_server_can_be_killed() {
    let server = server_or_skip!();
    server.pause().unwrap();
    server.kill().unwrap();
    server.kill().unwrap();
    assert_eq!(server.pid(), None);
    assert!(matches!(server.command(&["PING"]), Err(Error::Io { .. })));
    assert!(matches!(server.pause(), Err(Error::Io { .. })));
    server.restart_empty().unwrap();
    assert_eq!(server.command(&["PING"]).unwrap(), text("PONG"));
}

#[test]
fn restart_empty_forgets_and_restart_with_data_remembers() {
    let server = server_or_skip!();
    let (url, first) = (server.url(), server.pid());
    server.command(&["SET", "k", "v", "PX", "60000"]).unwrap();

    server.restart_with_data().unwrap();
    assert_ne!(server.pid(), first);
    assert_eq!(server.url(), url);
    assert_eq!(server.command(&["GET", "k"]).unwrap(), text("v"));
    let left = server.command(&["PTTL", "k"]).unwrap().as_int().unwrap();
    assert!((1..=60_000).contains(&left), "{left}");

    server.pause().unwrap();
    server.restart_with_data().unwrap();
    assert_eq!(server.command(&["GET", "k"]).unwrap(), text("v"));

    server.restart_empty().unwrap();
    assert!(server.command(&["GET", "k"]).unwrap().is_nil());

    server.kill().unwrap();
    assert!(matches!(server.restart_with_data(), Err(Error::NotPersistent)));
}

#[test]
fn an_append_only_server_remembers_through_a_kill() {
    let server = server_or_skip!(Server::builder().append_only());
    server.command(&["SET", "k", "v"]).unwrap();
    server.kill().unwrap();
    server.restart_with_data().unwrap();
    assert_eq!(server.command(&["GET", "k"]).unwrap(), text("v"));
    server.restart_empty().unwrap();
    assert!(server.command(&["GET", "k"]).unwrap().is_nil());
}

#[test]
fn a_server_takes_settings_a_password_and_a_socket() {
    let builder = Server::builder().setting("maxmemory", "8mb").password("secret1").unix_socket();
    let server = server_or_skip!(builder);
    let setting = server.command(&["CONFIG", "GET", "maxmemory"]).unwrap();
    assert_eq!(setting.as_list().unwrap()[1], text("8388608"));
    assert!(server.url().contains(":secret1@"));
    assert!(server.unix_socket().unwrap().exists());
    let refused = distlock_testkit::Connection::open(server.port(), None).unwrap().command(&["GET", "k"]);
    assert!(matches!(refused, Err(Error::Refused(text)) if text.starts_with("NOAUTH")));
}

#[test]
fn a_wrong_setting_is_told_in_the_servers_own_words() {
    drop(server_or_skip!());
    let error = Server::builder().setting("no-such-setting", "1").spawn().unwrap_err();
    assert!(matches!(&error, Error::NotReady { log } if log.contains("no-such-setting")), "{error}");
    let error = Server::builder().setting("unixsocket", "/no/such/folder/s").spawn().unwrap_err();
    assert!(matches!(&error, Error::NotReady { log } if log.contains("Unix socket")), "{error}");
    let error = Server::builder().program("/no/such/server").spawn().unwrap_err();
    assert!(error.to_string().starts_with("could not start `/no/such/server`"), "{error}");
}

#[test]
fn a_connection_killed_by_the_server_is_replaced() {
    let server = server_or_skip!();
    server.command(&["SET", "k", "v"]).unwrap();
    server.connect().unwrap().command(&["CLIENT", "KILL", "TYPE", "normal"]).unwrap();
    assert_eq!(server.command(&["GET", "k"]).unwrap(), text("v"));
}

#[test]
fn the_monitor_shows_exactly_what_others_sent() {
    let server = server_or_skip!();
    server.command(&["SET", "before", "x"]).unwrap();
    let mut monitor = server.monitor().unwrap();
    let mut client = distlock_testkit::Connection::open(server.port(), None).unwrap();
    client.command(&["set", "k", "a \"b\"\n"]).unwrap();
    client.command(&["EVAL", "return redis.call('GET', KEYS[1])", "1", "k"]).unwrap();
    server.command(&["DEL", "k"]).unwrap(); // the kit's own

    let seen = monitor.seen().unwrap();
    let names: Vec<String> = seen.iter().map(|seen| seen.name()).collect();
    assert_eq!(names, ["SET", "EVAL", "GET"]);
    assert_eq!(seen[0].parts, ["set", "k", "a \"b\"\n"]);
    assert_eq!(seen[0].client, client.local_addr().to_string());
    assert!(seen[2].is_from_script());
    assert_eq!(monitor.seen().unwrap(), []);

    client.command(&["EVAL", "return redis.call('GET', KEYS[1])", "1", "k"]).unwrap();
    assert_eq!(monitor.sent().unwrap().len(), 1);
}

#[test]
fn the_monitor_waits_for_a_command() {
    let server = server_or_skip!();
    let mut monitor = server.monitor().unwrap();
    assert_eq!(monitor.wait_for(Duration::from_millis(20), |_| true).unwrap(), None);
    let mut client = distlock_testkit::Connection::open(server.port(), None).unwrap();
    let sender = thread::spawn(move || {
        client.command(&["SET", "k", "1"]).unwrap();
        client.command(&["DEL", "k"]).unwrap();
    });
    let found = monitor.wait_for(Duration::from_secs(10), |seen| seen.name() == "DEL").unwrap();
    assert_eq!(found.unwrap().parts, ["DEL", "k"]);
    sender.join().unwrap();
    assert_eq!(monitor.seen().unwrap(), []);
}

#[test]
fn calls_are_counted_by_the_server() {
    let server = server_or_skip!();
    assert_eq!(server.calls("get").unwrap(), 0);
    server.command(&["GET", "k"]).unwrap();
    server.command(&["GET", "k"]).unwrap();
    assert_eq!(server.calls("GET").unwrap(), 2);
}

/// Runs this test program again with one test in it and these settings; gives its output and whether it passed.
fn rerun(test: &str, settings: &[(&str, &Path)]) -> (bool, String) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--include-ignored", "--nocapture", "--test-threads=1"]);
    command.envs(settings.iter().copied()).stdin(Stdio::null());
    let output = command.output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_test_without_a_server_is_skipped_by_name_or_fails() {
    const TEST: &str = "calls_are_counted_by_the_server";
    let folder = distlock_testkit::Folder::new().unwrap();
    let log = folder.path().join("skipped");
    let none = Path::new("/no/such/server");
    let unset = Path::new("");

    let settings = [("DISTLOCK_SERVER_BIN", none), ("DISTLOCK_SKIP_LOG", &log), ("DISTLOCK_REQUIRE_SERVER", unset)];
    let (passed, output) = rerun(TEST, &settings);
    assert!(passed, "{output}");
    assert!(output.contains(&format!("SKIPPED server::{TEST}: ")), "{output}");
    assert_eq!(std::fs::read_to_string(&log).unwrap(), format!("server::{TEST}\n"));

    let (passed, output) = rerun(TEST, &[("DISTLOCK_SERVER_BIN", none), ("DISTLOCK_REQUIRE_SERVER", Path::new("1"))]);
    assert!(!passed, "{output}");
    assert!(output.contains("needs a server"), "{output}");
}

#[test]
fn a_server_does_not_outlive_its_killed_parent() {
    const TEST: &str = "a_server_does_not_outlive_its_killed_parent";
    const FILE: &str = "DISTLOCK_TESTKIT_PARENT";
    if let Some(file) = std::env::var_os(FILE) {
        parent_of_a_server(Path::new(&file));
    }
    drop(server_or_skip!());
    let folder = distlock_testkit::Folder::new().unwrap();
    let file = folder.path().join("server");
    let mut parent = Command::new(std::env::current_exe().unwrap())
        .args([TEST, "--exact", "--test-threads=1"])
        .env(FILE, &file)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    eventually("the parent has a server", || file.exists());
    let text = std::fs::read_to_string(&file).unwrap();
    let (pid, data) = text.trim().split_once('\n').unwrap();
    let pid: u32 = pid.parse().unwrap();
    assert!(runs(pid));

    parent.kill().unwrap();
    parent.wait().unwrap();
    eventually("the server ends", || !runs(pid));
    eventually("its folder goes", || !Path::new(data).exists());
}

/// What the test above does in the process that it kills: starts a server, says so in the file, and stays.
fn parent_of_a_server(file: &Path) -> ! {
    let server = Server::spawn().unwrap();
    let part = file.with_extension("part");
    std::fs::write(&part, format!("{}\n{}\n", server.pid().unwrap(), server.folder().display())).unwrap();
    std::fs::rename(part, file).unwrap();
    loop {
        thread::park();
    }
}

#[test]
fn a_program_that_ends_at_once_is_not_waited_for() {
    let folder = distlock_testkit::Folder::new().unwrap();
    let program = folder.path().join("redis-server");
    std::fs::write(&program, "#!/bin/sh\nexit 1\n").unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let start = Instant::now();
    assert!(matches!(Server::builder().program(&program).spawn(), Err(Error::NotReady { .. })));
    assert!(start.elapsed() < Duration::from_secs(10));
}

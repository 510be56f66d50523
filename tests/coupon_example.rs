//! The coupon example keeps its word: ten coupons, no more, and an exit status that says so.

use std::path::PathBuf;
use std::process::{Command, Output};

use distlock_testkit::server_or_skip;

/// The example, which `cargo test` builds together with the tests.
fn coupon() -> Command {
    let tests = std::env::current_exe().unwrap();
    let program: PathBuf = tests.parent().and_then(|deps| deps.parent()).unwrap().join("examples/coupon");
    assert!(program.exists(), "the example is not built; run `cargo build --examples` first");
    let mut command = Command::new(program);
    command.env_remove("DISTLOCK_URL");
    command
}

fn run(args: &[&str]) -> Output {
    coupon().args(args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Exactly ten issued, by the audit's lines and by the lines of the buyers.
#[track_caller]
fn assert_ten_issued(output: &Output) {
    let text = stdout(output);
    assert!(output.status.success(), "{text}{}", stderr(output));
    for line in ["  issued    10 of 10, the shop has 0 left", "  oversold  0", "  overlaps  0", "  tokens    rising"] {
        assert!(text.lines().any(|it| it == line), "no line `{line}` in:\n{text}");
    }
    assert!(text.ends_with("the lock held\n"), "{text}");
}

#[test]
fn ten_coupons_are_issued_by_processes_on_a_server() {
    let server = server_or_skip!();
    let output = run(&["--processes", "3", "--buyers", "8", "--backend", &server.url()]);
    assert_ten_issued(&output);
    let text = stdout(&output);
    assert!(text.contains("24 granted, by 3 workers"), "{text}");
    assert_eq!(text.lines().filter(|line| line.starts_with("coupon ")).count(), 10, "{text}");
}

#[test]
fn ten_coupons_are_issued_by_processes_on_the_server_in_the_program() {
    let output = run(&["--processes=3", "--buyers=8", "--backend=embedded"]);
    assert_ten_issued(&output);
    let text = stdout(&output);
    assert!(text.starts_with("backend: a server inside of this program on port "), "{text}");
    assert!(text.contains("24 granted, by 3 workers"), "{text}");
}

#[test]
fn ten_coupons_are_issued_by_tasks_in_memory() {
    let output = run(&["--processes=3", "--buyers=8", "--backend=memory"]);
    assert_ten_issued(&output);
    assert!(stdout(&output).starts_with("backend: memory"));
}

#[test]
fn without_the_lock_the_shop_oversells_and_says_so() {
    let output = run(&["--no-lock", "--backend", "memory"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("OVERSOLD"), "{}", stdout(&output));

    let output = run(&["--no-lock", "--backend", "embedded"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("OVERSOLD"), "{}", stdout(&output));

    drop(server_or_skip!());
    let output = run(&["--no-lock", "--backend", "spawn"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("OVERSOLD"), "{}", stdout(&output));
}

#[test]
fn after_the_kill_of_a_holder_another_takes_over_in_time() {
    after_a_kill("embedded");
    drop(server_or_skip!());
    after_a_kill("spawn");
}

#[track_caller]
fn after_a_kill(backend: &str) {
    let output = run(&["--kill", "--processes", "3", "--buyers", "8", "--backend", backend]);
    assert_ten_issued(&output);
    let text = stdout(&output);
    let takeover = text.lines().find(|line| line.starts_with("  takeover  worker-"));
    assert!(takeover.is_some_and(|line| line.ends_with("(ttl 2 s, at most 2250 ms)")), "{text}");
}

#[test]
fn it_says_where_the_locks_are_and_keeps_the_password_to_itself() {
    let output = coupon().env("DISTLOCK_SERVER_BIN", "/no/such/server").output().unwrap();
    assert_ten_issued(&output);
    let text = stdout(&output);
    assert!(text.starts_with("backend: a server inside of this program on port "), "{text}");
    assert!(text.contains(", for want of another: ") && text.contains("`/no/such/server`"), "{text}");
    assert!(text.contains(" granted, by 4 workers"), "they are processes: {text}");

    let output = coupon().env("DISTLOCK_URL", "memory:").output().unwrap();
    assert_ten_issued(&output);
    assert!(stdout(&output).lines().next().unwrap().ends_with("named by `DISTLOCK_URL`"));

    let server = server_or_skip!(distlock_testkit::Server::builder().password("secret1"));
    let output = coupon().env("DISTLOCK_URL", server.url()).output().unwrap();
    assert_ten_issued(&output);
    let text = stdout(&output);
    assert!(text.starts_with(&format!("backend: the server at 127.0.0.1:{}, ", server.port())), "{text}");
    assert!(!text.contains("secret1"), "{text}");
}

#[test]
fn a_server_that_does_not_answer_is_one_clear_error() {
    let output = run(&["--backend", "redis://127.0.0.1:1"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
}

#[test]
fn a_wrong_flag_is_refused_with_the_way_out_and_nothing_is_sold() {
    let cases: [(&[&str], &str); 12] = [
        (&["--prosesses", "4"], "there is no flag `--prosesses`; see `--help`"),
        (&["4"], "there is no flag `4`; see `--help`"),
        (&["--processes"], "`--processes` lacks its value; see `--help`"),
        (&["--processes", "0"], "`--processes` cannot be `0`; give a whole number from 1 to 64"),
        (&["--processes=-1"], "`--processes` cannot be `-1`; give a whole number from 1 to 64"),
        (&["--buyers", "x"], "`--buyers` cannot be `x`; give a whole number from 1 to 1000"),
        (&["--buyers=99999999999999999999"], "`--buyers` cannot be `99999999999999999999`; "),
        (&["--backend", "memroy"], "`--backend` cannot be `memroy`; give auto, spawn, embedded, memory or a URL"),
        (&["--kill=yes"], "`--kill` takes no value; write it alone"),
        (&["--kill", "--no-lock"], "`--kill` and `--no-lock` exclude each other; "),
        (&["--kill", "--backend", "memory"], "`--kill` needs worker processes, "),
        (&["--processes", "1", "--buyers", "9"], "10 coupons need 10 buyers, and there are 9; "),
    ];
    for (args, error) in cases {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(stderr(&output).starts_with(&format!("coupon: {error}")), "{args:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn help_names_every_flag() {
    let output = run(&["--help"]);
    assert!(output.status.success());
    for flag in
        ["auto ", "spawn ", "embedded ", "memory ", "--processes", "--buyers", "--backend", "--no-lock", "--kill"]
    {
        assert!(stdout(&output).contains(flag), "{flag}");
    }
}

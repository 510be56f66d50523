//! The time that the processor spends on a command and on all that the command starts.

use std::process::Command;

/// Runs a command and answers with its seconds of user time, or `None` where there is no shell that can tell.
///
/// # Panics
///
/// If the command fails.
pub(crate) fn of(command: &Command) -> Option<f64> {
    // The shell runs the command and then says what its children took: `0m1.250s 0m0.100s` in its second line.
    let mut shell = Command::new("sh");
    shell.args(["-c", r#""$@" >&2 && times"#, "sh"]).arg(command.get_program()).args(command.get_args());
    if let Some(folder) = command.get_current_dir() {
        shell.current_dir(folder);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    let output = shell.output().ok()?;
    assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8_lossy(&output.stdout);
    let (minutes, seconds) = said.lines().nth(1)?.split_whitespace().next()?.strip_suffix('s')?.split_once('m')?;
    Some(minutes.parse::<f64>().ok()? * 60.0 + seconds.parse::<f64>().ok()?)
}

/// The one in the middle.
pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

#[test]
fn the_time_of_a_command_is_that_of_what_it_starts() {
    let mut busy = Command::new("sh");
    busy.args(["-c", "sh -c 'i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done'"]);
    let idle = of(&Command::new("true"));
    assert!(of(&busy) > idle, "{idle:?}");
}

//! Workers as processes: this program again, with the hidden flag `--worker`.

use std::path::Path;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::mpsc::UnboundedSender;

use crate::Result;
use crate::news::News;
use crate::options::Options;

/// A running worker.
pub(crate) struct Process {
    /// As in `worker-1`.
    pub(crate) name: String,
    pub(crate) child: Child,
}

/// Starts all workers; what they tell goes to `tell`, which is let go when the last one is done.
pub(crate) fn start(options: &Options, url: &str, shop: &Path, tell: UnboundedSender<News>) -> Result<Vec<Process>> {
    let program = std::env::current_exe()?;
    let mut processes = Vec::new();
    for work in options.works(shop) {
        let mut child = Command::new(&program)
            .args(work.to_args())
            .env("DISTLOCK_URL", url) // not as an argument: it may have a password in it
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        if let Some(output) = child.stdout.take() {
            tokio::spawn(pass_on(work.name.clone(), output, tell.clone()));
        }
        processes.push(Process { name: work.name, child });
    }
    Ok(processes)
}

/// Waits for all workers. Gives a line for each that ended badly, other than by the kill that was meant for it.
pub(crate) async fn wait(processes: Vec<Process>, killed: Option<&str>) -> Result<Vec<String>> {
    let mut failed = Vec::new();
    for mut process in processes {
        let status = process.child.wait().await?;
        if !status.success() && killed != Some(&process.name) {
            failed.push(format!("{}: {status}", process.name));
        }
    }
    Ok(failed)
}

/// Reads the lines of one worker.
async fn pass_on(worker: String, output: ChildStdout, tell: UnboundedSender<News>) {
    let mut lines = BufReader::new(output).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let unread = || News::Failed { buyer: worker.clone(), why: format!("said `{line}`") };
        if tell.send(News::parse(&line).unwrap_or_else(unread)).is_err() {
            return; // nobody listens any more
        }
    }
}

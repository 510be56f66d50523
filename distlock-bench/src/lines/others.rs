//! The locks of other languages, where they are installed: the same two measurements by a script of theirs.

use std::process::{Command, Stdio};

use crate::Result;
use crate::bench::Bench;
use crate::report::{Line, Report};

struct Other {
    name: &'static str,
    program: &'static str,
    /// Succeeds where the lock is installed.
    probe: [&'static str; 2],
    flag: &'static str,
    script: &'static str,
    install: &'static str,
}

const OTHERS: [Other; 2] = [
    Other {
        name: "redis-py Lock",
        program: "python3",
        probe: ["-c", "import redis.asyncio.lock"],
        flag: "-c",
        script: include_str!("../../others/redis_py.py"),
        install: "pip install redis",
    },
    Other {
        name: "node-redlock",
        program: "node",
        probe: ["-e", "require('redlock'); require('ioredis')"],
        flag: "-e",
        script: include_str!("../../others/node_redlock.js"),
        install: "npm install redlock ioredis",
    },
];

pub(crate) fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    let server = bench.server()?;
    let seconds = bench.pick("4", "0.7");
    for other in &OTHERS {
        let skipped = |why: String| Line { line: format!("{}: skipped", other.name), note: why, ..Line::default() };
        if !other.is_installed() {
            report.add(skipped(format!("not installed; `{}`", other.install)));
            continue;
        }
        let port = server.port().to_string();
        let output = Command::new(other.program)
            .args([other.flag, other.script])
            .args([&*port, seconds])
            .stdin(Stdio::null())
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let mut numbers = text.split_whitespace().map(str::parse::<f64>);
        let (Some(Ok(micros)), Some(Ok(rate))) = (numbers.next(), numbers.next()) else {
            let error = String::from_utf8_lossy(&output.stderr);
            report.add(skipped(error.lines().last().unwrap_or("it said nothing").to_owned()));
            continue;
        };
        report.add(Line {
            line: format!("uncontended lock + unlock: {}", other.name),
            figure: micros,
            unit: "us",
            ..Line::default()
        });
        report.add(Line {
            line: format!("hot key, 64 tasks of one process: {}", other.name),
            figure: rate,
            unit: "calls/s",
            ..Line::default()
        });
    }
    Ok(())
}

impl Other {
    fn is_installed(&self) -> bool {
        let probe = Command::new(self.program).args(self.probe).stdout(Stdio::null()).stderr(Stdio::null()).status();
        probe.is_ok_and(|status| status.success())
    }
}

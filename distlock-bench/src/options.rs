//! What the command line says.

use std::path::PathBuf;

use crate::Result;

/// How to use the program.
pub(crate) const HELP: &str = "\
cargo run --release -p distlock-bench -- [OPTIONS] [LINE ...]

Runs each line of the table of figures beside other locks, on a server of its own. Writes bench.json and bench.svg.
Exits with 1 if a line does not hold.

  LINE         only lines with this in their name; see --list
  --quick      shorter rounds, and nothing that has to be compiled: at most a minute
  --out DIR    where the two files go; default: the current folder
  --list       names of the lines
  --help       this";

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Help,
    List,
    Bench(Options),
    /// This program as a process of a line; see `child.rs`.
    Child(Vec<String>),
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) quick: bool,
    pub(crate) out: PathBuf,
    /// Parts of names; none means all lines.
    pub(crate) lines: Vec<String>,
}

impl Options {
    pub(crate) fn wants(&self, line: &str) -> bool {
        self.lines.is_empty() || self.lines.iter().any(|part| line.contains(part.as_str()))
    }
}

/// Reads the arguments behind the program's name.
pub(crate) fn parse(args: impl IntoIterator<Item = String>) -> Result<Wanted> {
    let mut args = args.into_iter();
    let mut options = Options::default();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "child" => return Ok(Wanted::Child(args.collect())),
            "--help" | "-h" => return Ok(Wanted::Help),
            "--list" => return Ok(Wanted::List),
            "--quick" => options.quick = true,
            "--out" => options.out = args.next().ok_or("`--out` wants a folder")?.into(),
            unknown if unknown.starts_with('-') => return Err(format!("there is no `{unknown}`; see `--help`").into()),
            line => options.lines.push(line.to_owned()),
        }
    }
    Ok(Wanted::Bench(options))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Wanted> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn arguments_are_read_and_typing_errors_are_not_swallowed() {
        let Ok(Wanted::Bench(options)) = read("--quick latency --out wip") else { panic!("refused") };
        assert!(options.quick && options.wants("latency") && !options.wants("hot-key"));
        assert_eq!(options.out, PathBuf::from("wip"));
        assert_eq!(read("child hold x").unwrap(), Wanted::Child(vec!["hold".to_owned(), "x".to_owned()]));
        for wrong in ["--quik", "--out"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}

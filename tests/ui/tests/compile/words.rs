//! What the compiler said, without what differs from one machine or one edit to the next.

use std::env;
use std::fs;
use std::path::Path;

/// How wide line numbers are written.
const GUTTER: usize = 2;

/// The messages alone, with the places of other crates by name and without their lines.
pub(crate) fn normal(said: &str, root: &Path) -> String {
    let root = root.display().to_string();
    let mut lines: Vec<String> = Vec::new();
    // Whether the lines that are quoted come from a file that is not the one being compiled.
    let mut foreign = false;
    for line in said.lines() {
        let summary =
            ["error: aborting due to", "error: could not compile", "Some errors have", "For more information"];
        if summary.iter().any(|start| line.starts_with(start)) || warnings(line) {
            continue;
        }
        let line = line.replace(&root, "$WORKSPACE");
        let trimmed = line.trim_start();
        if let Some(place) = ["--> ", "::: "].iter().find_map(|arrow| trimmed.strip_prefix(arrow)) {
            let file = place.split(':').next().unwrap_or(place);
            foreign = !file.starts_with("fail/") && !file.starts_with("pass/");
            let shown = if foreign { known(file) } else { place.to_owned() };
            lines.push(format!("{}{} {shown}", " ".repeat(GUTTER), &trimmed[..3]));
            continue;
        }
        if line.is_empty() || !line.starts_with([' ', '.']) && !trimmed.starts_with(|c: char| c.is_ascii_digit()) {
            foreign = false;
        }
        let digits = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
        let (number, rest) = trimmed.split_at(digits);
        let rest = rest.trim_start();
        let is_gutter = line.starts_with([' ', '.']) || !number.is_empty();
        match rest.chars().next() {
            // A line of a foreign file may be another one tomorrow.
            Some('|') if is_gutter && foreign => continue,
            Some('|' | '=' | '-' | '+' | '~') if is_gutter => lines.push(format!("{number:>GUTTER$} {rest}")),
            _ if foreign && rest.starts_with("...") => continue,
            _ => lines.push(line),
        }
    }
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

fn warnings(line: &str) -> bool {
    line.starts_with("warning: ") && (line.ends_with(" emitted") || line.ends_with("warning generated"))
}

/// A file of another crate, as everybody has it.
fn known(file: &str) -> String {
    for (folder, name) in [("/library/", "$RUST"), ("/registry/src/", "$CARGO")] {
        if let Some((_, inside)) = file.split_once(folder) {
            let inside =
                if name == "$CARGO" { inside.split_once('/').map_or(inside, |(_, inside)| inside) } else { inside };
            return format!("{name}/{inside}");
        }
    }
    match file.strip_prefix("$WORKSPACE/") {
        Some(_) => file.to_owned(),
        // The libraries of the workspace know their own folders from its root.
        None => format!("$WORKSPACE/{file}"),
    }
}

/// Compares with the words that are agreed, or makes these the agreed ones.
pub(crate) fn compare(agreed: &Path, said: &str) -> Result<(), String> {
    let before = fs::read_to_string(agreed).unwrap_or_default();
    if before == said {
        return Ok(());
    }
    if env::var_os("DISTLOCK_BLESS").is_some() {
        return fs::write(agreed, said).map_err(|error| error.to_string());
    }
    Err(format!("----- agreed\n{before}----- said\n{said}-----"))
}

#[test]
fn places_lose_what_is_of_one_machine() {
    let said = "error: no\n   --> fail/a.rs:4:26\n    |\n  4 | x\n    | ^\n    |\nnote: required by\n   --> /home/me/w/distlock-runtime/src/a.rs:123:4\n    |\n123 | y\n    | ^\n\nerror: aborting due to 1 previous error\n";
    let expected = "error: no\n  --> fail/a.rs:4:26\n   |\n 4 | x\n   | ^\n   |\nnote: required by\n  --> $WORKSPACE/distlock-runtime/src/a.rs\n";
    assert_eq!(normal(said, Path::new("/home/me/w")), expected);
}

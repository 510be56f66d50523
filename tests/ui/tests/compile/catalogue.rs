//! The list of everything that is refused, against the files that show it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The rows that are about several errors in one build.
pub(crate) const SEVERAL: [&str; 1] = ["41"];

/// The row that a file shows: its first line is `// catalogue ROW` or `// ROW`, and more words after a comma if it likes.
pub(crate) fn row(file: &Path) -> Option<String> {
    let source = fs::read_to_string(file).ok()?;
    let first = source.lines().next()?.strip_prefix("// ")?;
    let row = first.strip_prefix("catalogue ").unwrap_or(first);
    Some(row.split([',', ' ']).next()?.to_owned())
}

/// Rows without a file, files without a row, and lines that are no rows.
pub(crate) fn problems(files: &[PathBuf]) -> Vec<String> {
    let catalogue = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("catalogue.txt")).unwrap();
    let mut rows: BTreeMap<String, usize> = BTreeMap::new();
    let mut problems = Vec::new();
    for line in catalogue.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.split_once("  ") {
            Some((row, what)) if !what.trim().is_empty() => {
                if rows.insert(row.trim().to_owned(), 0).is_some() {
                    problems.push(format!("row {row} stands twice in the catalogue"));
                }
            }
            _ => problems.push(format!("no row of the catalogue: {line}")),
        }
    }
    for file in files {
        match row(file).and_then(|row| rows.get_mut(&row)) {
            Some(count) => *count += 1,
            None => problems.push(format!("the first line names no row of the catalogue: {}", file.display())),
        }
    }
    problems.extend(rows.iter().filter(|(_, count)| **count == 0).map(|(row, _)| format!("row {row} has no file")));
    problems
}

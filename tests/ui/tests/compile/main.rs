//! What compiles, and what does not and with which words. One fault per file in `fail`; its first line names the row of
//! `catalogue.txt` that it shows.
//!
//! Each file is given to the compiler by itself, with the libraries that are built already: a package for each, as the
//! usual crates for this make, takes ten times as long. After a change of words, `DISTLOCK_BLESS=1 cargo test -p
//! distlock-ui --test compile` writes the new ones, for `git diff` to judge.

mod catalogue;
mod compiler;
mod words;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use compiler::Compiler;

/// The release whose words the `.stderr` files are. Others say the same things in other words.
const PINNED: &str = "1.95.";

/// Compiles side by side; more would compete with the other tests.
const WORKERS: usize = 2;

#[test]
fn accepted() {
    let compiler = Compiler::find("accepted");
    judge("pass", |file| compiler.run(file));
}

#[test]
fn refused() {
    let compiler = Compiler::find("refused");
    let version = compiler.version();
    if !version.starts_with(PINNED) {
        // It is refused all the same, in whatever words.
        judge("fail", |file| compiler.check(file).map_or(Ok(()), |_| Err("it compiles".to_owned())));
        skip(&format!("the words of refusals: they are those of Rust {PINNED}*, this is {version}"));
        return;
    }
    judge("fail", |file| {
        let said = words::normal(&compiler.check(file).err().ok_or("it compiles")?, &root());
        let errors = said.lines().filter(|line| line.starts_with("error")).count();
        let several = catalogue::row(file).is_some_and(|row| catalogue::SEVERAL.contains(&row.as_str()));
        if errors != 1 && !several {
            return Err(format!("one fault is {errors} errors:\n{said}"));
        }
        words::compare(&file.with_extension("stderr"), &said)
    });
}

#[test]
fn every_row_of_the_catalogue_has_a_file_and_every_file_a_row() {
    let problems = catalogue::problems(&files("fail"));
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "rs"));
    files.sort();
    files
}

/// Has every file of the folder judged, and names all that do not pass.
fn judge(folder: &str, verdict: impl Fn(&Path) -> Result<(), String> + Sync) {
    let files = files(folder);
    let (next, problems) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(problem) = verdict(file) {
                        problems.lock().unwrap().push(format!("{}: {problem}", file.display()));
                    }
                }
            });
        }
    });
    let mut problems = problems.into_inner().unwrap();
    problems.sort();
    println!("{} files in `{folder}`, {} of them wrong", files.len(), problems.len());
    assert!(problems.is_empty(), "{} of {} files:\n\n{}", problems.len(), files.len(), problems.join("\n\n"));
}

/// Names what did not run where the test command lists it.
fn skip(what: &str) {
    use std::io::Write as _;
    eprintln!("skipped: {what}");
    if let Some(log) = std::env::var_os("DISTLOCK_SKIP_LOG") {
        let mut log = fs::OpenOptions::new().create(true).append(true).open(log).unwrap();
        writeln!(log, "{what}").unwrap();
    }
}

//! The compiler, with the libraries that this test itself was linked with.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::SystemTime;

/// What the files may use besides, each with a program that only compiles if the library is the right one.
const LIBRARIES: [(&str, &str); 3] = [
    ("async_trait", "#[async_trait::async_trait] trait T { async fn f(&self); } fn main() {}"),
    ("anyhow", "fn main() { let _: anyhow::Error = anyhow::anyhow!(\"x\"); }"),
    ("thiserror", "#[derive(Debug, thiserror::Error)] #[error(\"x\")] struct E; fn main() {}"),
];

/// Works if the library and the runtime belong together, and the runtime has all its features.
const PAIR: &str = "#[tokio::main] async fn main() {
    tokio::fs::metadata(\"\").await.ok();
    distlock::LockManager::in_memory().lock(\"k\").acquire().await.unwrap();
}";

pub(crate) struct Compiler {
    rustc: OsString,
    /// The folder with everything that the libraries need.
    libraries: PathBuf,
    externs: Vec<(&'static str, PathBuf)>,
    /// For what is compiled.
    out: PathBuf,
}

impl Compiler {
    /// With `distlock` and `tokio` alone. The name is that of the folder for what is compiled.
    pub(crate) fn bare(name: &str) -> Self {
        let this = env::current_exe().unwrap();
        let libraries = this.parent().unwrap().to_owned();
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("ui-{name}"));
        fs::create_dir_all(&out).unwrap();
        let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let mut compiler = Self { rustc, libraries, externs: Vec::new(), out };
        compiler.externs = compiler.pair();
        compiler
    }

    /// With all libraries that the files may use.
    pub(crate) fn find(name: &str) -> Self {
        let mut compiler = Self::bare(name);
        for (name, program) in LIBRARIES {
            let source = compiler.source(name, program);
            let found = compiler.builds(name).into_iter().find(|build| {
                compiler.externs.push((name, build.clone()));
                let fits = compiler.check(&source).is_ok();
                compiler.externs.pop();
                fits
            });
            let build = found.unwrap_or_else(|| panic!("no build of `{name}` in {}", compiler.libraries.display()));
            compiler.externs.push((name, build));
        }
        compiler
    }

    /// The library and the runtime that it was built with. Other builds of both may lie there: for other features, for
    /// macros, of another compiler. A runtime that is another build looks right to the compiler, so the two are run.
    fn pair(&self) -> Vec<(&'static str, PathBuf)> {
        let source = self.source("pair", PAIR);
        for library in self.builds("distlock") {
            for runtime in self.builds("tokio") {
                let externs = vec![("distlock", library.clone()), ("tokio", runtime)];
                let with = Self {
                    externs,
                    rustc: self.rustc.clone(),
                    libraries: self.libraries.clone(),
                    out: self.out.clone(),
                };
                if with.run(&source).is_ok() {
                    return with.externs;
                }
            }
        }
        panic!("no builds of `distlock` and `tokio` that belong together in {}", self.libraries.display())
    }

    /// Writes a program down to be compiled.
    pub(crate) fn source(&self, name: &str, program: &str) -> PathBuf {
        let source = self.out.join(format!("uses_{name}.rs"));
        fs::write(&source, program).unwrap();
        source
    }

    /// Every build of a library, the newest first: cargo has just seen to it that this one is up to date.
    fn builds(&self, name: &str) -> Vec<PathBuf> {
        let is_build = |file: &Path| {
            let text = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let library = text.strip_prefix("lib").or_else(|| text.strip_prefix(name).map(|_| text));
            let ends = [".rlib", ".so", ".dylib", ".dll"].iter().any(|end| text.ends_with(end));
            ends && library.is_some_and(|text| text.strip_prefix(name).is_some_and(|rest| rest.starts_with('-')))
        };
        let age =
            |file: &PathBuf| fs::metadata(file).and_then(|data| data.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
        let mut builds: Vec<PathBuf> = fs::read_dir(&self.libraries)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|file| is_build(file))
            .collect();
        builds.sort_by_key(|build| std::cmp::Reverse(age(build)));
        builds
    }

    /// As in `1.95.0 (…)`.
    pub(crate) fn version(&self) -> String {
        let output = Command::new(&self.rustc).arg("--version").output().unwrap();
        text(&output.stdout).trim_start_matches("rustc ").trim().to_owned()
    }

    /// Checks the file as `cargo check` does, or says what the compiler said.
    pub(crate) fn check(&self, file: &Path) -> Result<(), String> {
        let output = self.compile(file, "metadata");
        if output.status.success() { Ok(()) } else { Err(text(&output.stderr)) }
    }

    /// Builds the file and runs it.
    pub(crate) fn run(&self, file: &Path) -> Result<(), String> {
        let output = self.compile(file, "link");
        if !output.status.success() {
            return Err(text(&output.stderr));
        }
        let program = self.out.join(file.file_stem().unwrap());
        let output = Command::new(program).output().map_err(|error| error.to_string())?;
        if output.status.success() { Ok(()) } else { Err(format!("{}{}", text(&output.stdout), text(&output.stderr))) }
    }

    fn compile(&self, file: &Path, emit: &str) -> Output {
        self.command(file, emit).output().unwrap()
    }

    /// The call of the compiler for one file.
    pub(crate) fn command(&self, file: &Path, emit: &str) -> Command {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut command = Command::new(&self.rustc);
        command.current_dir(here).args([
            "--edition=2024",
            "--crate-type=bin",
            "--color=never",
            "--diagnostic-width=140",
        ]);
        command.arg(format!("--emit={emit}")).arg("--out-dir").arg(&self.out);
        command.arg("-L").arg(format!("dependency={}", self.libraries.display()));
        for (name, build) in &self.externs {
            command.arg("--extern").arg(format!("{name}={}", build.display()));
        }
        command.arg(file.strip_prefix(here).unwrap_or(file));
        command
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

//! What the library costs at build: the expansion of the attribute, and the tree of dependencies.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use distlock_testkit::Folder;

use crate::Result;
use crate::bench::{Bench, millis_of};
use crate::figures::Sample;
use crate::place::children_cpu_time;
use crate::report::{Line, Report};

/// The repository that this program was built from.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

const FUNCTIONS: usize = 300;

/// `redis` with what the library itself asks of it, so that the comparison does not favour us.
const REDIS: &str = r#"redis = { version = "1.8.1", default-features = false, features = ["script", "tokio-comp"] }"#;
const TOKIO: &str = r#"tokio = { version = "1", features = ["macros", "rt-multi-thread", "time"] }"#;

pub(crate) fn expansion(bench: &Bench, report: &mut Report) -> Result<()> {
    bench.cores.unpin()?;
    let folder = Folder::new()?;
    let dependencies = format!("distlock = {{ path = {ROOT:?} }}\n{TOKIO}");
    let package = |name: &str, function: &dyn Fn(usize) -> String| {
        let functions: String = (0..FUNCTIONS).map(function).collect();
        let source = format!("use distlock::LockError;\n{functions}");
        Package::write(folder.path(), name, &dependencies, "lib.rs", &source)
    };
    let plain = package("plain", &|number| function(number, ""))?;
    let annotated = package("annotated", &|number| {
        function(number, "#[distlock::distributed_lock(key = \"order:{id}\", ttl = \"5s\", wait = \"300ms\")]\n")
    })?;
    let target = folder.path().join("target");
    for package in [&plain, &annotated] {
        package.cargo("check", &target)?;
    }
    let (mut each, mut wall) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        let [plain, annotated] = [plain.check_again(&target)?, annotated.check_again(&target)?];
        each.push((millis_of(annotated.cpu) - millis_of(plain.cpu)) / FUNCTIONS as f64);
        wall.push((millis_of(annotated.wall) - millis_of(plain.wall)) / FUNCTIONS as f64);
    }
    bench.cores.pin_clients()?;
    let (each, wall) = (Sample::new(each), Sample::new(wall));
    let (low, high) = each.spread();
    report.add(Line {
        line: format!("`cargo check` of {FUNCTIONS} annotated functions beyond plain ones"),
        figure: each.median(),
        unit: "ms each",
        target: "<= 4".to_owned(),
        holds: Some(each.median() <= 4.0),
        note: format!(
            "CPU time; half of {} pairs {low:.2} to {high:.2}; by the clock {:.2}",
            each.len(),
            wall.median()
        ),
        ..Line::default()
    });
    Ok(())
}

fn function(number: usize, attribute: &str) -> String {
    format!(
        "{attribute}pub async fn pay_{number}(id: u64, amount: u32) -> Result<u64, LockError> {{\n    \
         let sum = id.wrapping_add(u64::from(amount));\n    Ok(sum)\n}}\n"
    )
}

pub(crate) fn cold(bench: &Bench, report: &mut Report) -> Result<()> {
    bench.cores.unpin()?;
    let folder = Folder::new()?;
    let ours = Package::write(
        folder.path(),
        "with-distlock",
        &format!("distlock = {{ path = {ROOT:?} }}\n{TOKIO}"),
        "main.rs",
        "use distlock::{LockError, LockManager, distributed_lock};\n\
         #[distributed_lock(key = \"hello:{name}\", ttl = \"5s\", manager = locks)]\n\
         async fn hello(locks: &LockManager, name: &str) -> Result<(), LockError> { println!(\"hello {name}\"); Ok(()) }\n\
         #[tokio::main]\n\
         async fn main() -> Result<(), LockError> { hello(&LockManager::in_memory(), \"you\").await }\n",
    )?;
    let floor = Package::write(
        folder.path(),
        "with-redis",
        &format!("{REDIS}\n{TOKIO}"),
        "main.rs",
        "#[tokio::main]\n\
         async fn main() -> redis::RedisResult<()> {\n\
         let client = redis::Client::open(\"redis://127.0.0.1\")?;\n\
         let mut connection = client.get_multiplexed_async_connection().await?;\n\
         redis::cmd(\"SET\").arg(\"hello\").arg(\"you\").query_async(&mut connection).await\n}\n",
    )?;
    let mut ratios = Vec::new();
    let mut seconds = Vec::new();
    for round in 0..2 {
        let [own, other] =
            [&ours, &floor].map(|package| package.build_cold(&folder.path().join(format!("cold-{round}"))));
        let (own, other) = (own?, other?);
        ratios.push(own.as_secs_f64() / other.as_secs_f64());
        seconds.push((own.as_secs_f64(), other.as_secs_f64()));
    }
    bench.cores.pin_clients()?;
    let ratios = Sample::new(ratios);
    report.add(Line {
        line: "cold `cargo build` of a hello-world user, CPU time".to_owned(),
        figure: seconds[0].0,
        unit: "s",
        ratio: Some(ratios.max()),
        target: "<= 1.35x".to_owned(),
        holds: Some(ratios.max() <= 1.35),
        note: format!("against redis + tokio alone, {:.1} s; the worse of {}", seconds[0].1, ratios.len()),
    });
    Ok(())
}

/// How long a check took: the CPU time is what is left of it on a busy machine.
struct Took {
    wall: Duration,
    cpu: Duration,
}

/// A package outside of the workspace, with the versions of the workspace.
struct Package {
    folder: PathBuf,
    source: PathBuf,
}

impl Package {
    fn write(parent: &Path, name: &str, dependencies: &str, file: &str, source: &str) -> Result<Self> {
        let folder = parent.join(name);
        std::fs::create_dir_all(folder.join("src"))?;
        let manifest = format!(
            "[package]\nname = \"{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[dependencies]\n{dependencies}\n\n[workspace]\n"
        );
        std::fs::write(folder.join("Cargo.toml"), manifest)?;
        std::fs::copy(Path::new(ROOT).join("Cargo.lock"), folder.join("Cargo.lock"))?;
        let path = folder.join("src").join(file);
        std::fs::write(&path, source)?;
        Ok(Self { folder, source: path })
    }

    fn cargo(&self, command: &str, target: &Path) -> Result<()> {
        let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args([command, "--quiet", "--offline"])
            .current_dir(&self.folder)
            .env("CARGO_TARGET_DIR", target)
            .env("CARGO_INCREMENTAL", "0")
            .stdin(Stdio::null())
            .output()?;
        if output.status.success() {
            return Ok(());
        }
        let error = String::from_utf8_lossy(&output.stderr);
        Err(format!("`cargo {command}` failed: {}", error.lines().next().unwrap_or_default()).into())
    }

    /// A check of this package alone, its dependencies being there.
    fn check_again(&self, target: &Path) -> Result<Took> {
        let source = std::fs::read(&self.source)?;
        std::fs::write(&self.source, source)?;
        let (begun, before) = (Instant::now(), children_cpu_time()?);
        self.cargo("check", target)?;
        Ok(Took { wall: begun.elapsed(), cpu: children_cpu_time()?.saturating_sub(before) })
    }

    /// The CPU time of a build with nothing there.
    fn build_cold(&self, target: &Path) -> Result<Duration> {
        if target.exists() {
            std::fs::remove_dir_all(target)?;
        }
        let before = children_cpu_time()?;
        self.cargo("build", target)?;
        let after = children_cpu_time()?;
        std::fs::remove_dir_all(target)?;
        Ok(after.saturating_sub(before))
    }
}

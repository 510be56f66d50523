//! What the attribute adds to the compiler's time.

use std::fmt::Write as _;

use crate::compiler::Compiler;
use crate::{COMPILING, figure, time};

const FUNCTIONS: usize = 300;

/// Runs of each kind, one after the other, of which the middle one counts.
const RUNS: usize = 3;

/// What a declaration may add to `cargo check`.
const MILLISECONDS: f64 = 4.0;

#[test]
fn time_to_check_many_declarations() {
    let _alone = COMPILING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let compiler = Compiler::bare("expansion");
    let plain = compiler.source("plain", &program(false));
    let locked = compiler.source("locked", &program(true));
    let mut seconds = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let (Some(of_plain), Some(of_locked)) =
            (time::of(&compiler.command(&plain, "metadata")), time::of(&compiler.command(&locked, "metadata")))
        else {
            figure("time to check a declaration: not known, for want of a shell that tells it");
            return;
        };
        seconds.0.push(of_plain);
        seconds.1.push(of_locked);
    }
    let (plain, locked) = (time::median(seconds.0), time::median(seconds.1));
    let each = (locked - plain) * 1e3 / FUNCTIONS as f64;
    figure(&format!(
        "check of {FUNCTIONS} functions: {plain:.2} s plain, {locked:.2} s locked: {each:.2} ms each (to reach: {MILLISECONDS} ms)"
    ));
}

fn program(locked: bool) -> String {
    let mut source = "#![allow(dead_code)]\n\nuse distlock::LockError;\n\nfn main() {}\n\n".to_owned();
    for number in 0..FUNCTIONS {
        if locked {
            writeln!(source, "#[distlock::distributed_lock(key = \"job{number}:{{id}}:{{name}}\", ttl = \"5s\")]")
                .expect("a text takes all that is written to it");
        }
        writeln!(
            source,
            "async fn job{number}(id: u64, name: &str) -> Result<usize, LockError> {{\n    \
             tokio::task::yield_now().await;\n    Ok(name.len() + id.count_ones() as usize)\n}}\n"
        )
        .expect("a text takes all that is written to it");
    }
    source
}

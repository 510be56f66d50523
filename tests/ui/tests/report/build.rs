//! What the macro crate costs a build that starts from nothing.

use std::env;
use std::path::Path;
use std::process::Command;

use crate::{COMPILING, figure, time};

/// With all that it depends on.
const COLD: f64 = 3.5;

/// Where `syn` 3 and what it needs are built anyway, as they are beside tokio's macros.
const ALONE: f64 = 0.5;

#[test]
fn time_to_build_the_macro() {
    if env::var_os("DISTLOCK_FIGURES").is_none_or(|which| which != "all") {
        figure("build of the macro crate: not asked for with DISTLOCK_FIGURES=all");
        return;
    }
    let _alone = COMPILING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("macro-crate");
    // Left behind by a run that was ended.
    std::fs::remove_dir_all(&target).ok();
    let cargo = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO"));
        command.args(arguments).args(["-p", "distlock-macros", "--offline", "--target-dir"]).arg(&target);
        // As cargo builds a macro that is a dependency: from the registry, for the host.
        command
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env("CARGO_INCREMENTAL", "0");
        time::of(&command)
    };
    let cold = cargo(&["build"]);
    // What cargo itself takes to find out that there is nothing to do.
    let nothing = cargo(&["build"]);
    cargo(&["clean"]);
    let alone = cargo(&["build"]);
    std::fs::remove_dir_all(&target).ok();
    let (Some(cold), Some(nothing), Some(alone)) = (cold, nothing, alone) else {
        figure("build of the macro crate: not known, for want of a shell that tells it");
        return;
    };
    let (cold, alone) = (cold - nothing, alone - nothing);
    figure(&format!(
        "build of the macro crate: {cold:.2} s of CPU from nothing (to reach: {COLD} s), {alone:.2} s where `syn` is built (to reach: {ALONE} s)"
    ));
}

//! How deep locked functions may await each other before the compiler's `recursion_limit` ends it.

use std::fmt::Write as _;

use crate::compiler::Compiler;
use crate::{COMPILING, figure};

/// What has to work in a crate that sets no limit of its own.
const NEEDED: usize = 12;

/// Deeper than anybody goes; the search ends there.
const DEEPEST: usize = 40;

#[test]
fn locked_functions_nest_without_a_higher_limit() {
    let _alone = COMPILING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let compiler = Compiler::bare("nesting");
    let attempt = |depth: usize| compiler.run(&compiler.source(&format!("nesting_{depth}"), &program(depth)));
    // `works` is known to work, and `fails` not to.
    let (mut works, mut fails) = (NEEDED, DEEPEST + 1);
    if let Err(said) = attempt(works) {
        panic!("{works} locked functions that await each other do not compile, or do not run:\n{said}");
    }
    while fails - works > 1 {
        let middle = works.midpoint(fails);
        match attempt(middle) {
            Ok(()) => works = middle,
            // Any other error would be a fault of the program, and not a depth.
            Err(said) if said.contains("recursion_limit") => fails = middle,
            Err(said) => panic!("{middle} locked functions:\n{said}"),
        }
    }
    let bound = if works == DEEPEST { "at least " } else { "" };
    figure(&format!("locked functions, each awaiting the next, in one task: {bound}{works} deep (to reach: {NEEDED})"));
}

/// So many locked functions, the last of which is spawned: a task has to be `Send` all the way down.
fn program(depth: usize) -> String {
    let mut source = "use distlock::{LockError, LockManager, distributed_lock};\n\n".to_owned();
    for level in 1..=depth {
        let below = match level {
            1 => "tokio::task::yield_now().await; Ok(id)".to_owned(),
            _ => format!("level{}(id).await", level - 1),
        };
        writeln!(
            source,
            "#[distributed_lock(key = \"level{level}:{{id}}\", ttl = \"5s\")]\n\
             async fn level{level}(id: u64) -> Result<u64, LockError> {{ {below} }}\n"
        )
        .expect("a text takes all that is written to it");
    }
    source
        + &format!(
            "#[tokio::main]\nasync fn main() {{\n    distlock::init(LockManager::in_memory()).unwrap();\n    \
             assert_eq!(tokio::spawn(level{depth}(7)).await.unwrap().unwrap(), 7);\n}}\n"
        )
}

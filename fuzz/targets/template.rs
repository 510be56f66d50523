//! Text as a key template.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| distlock_fuzz::template(text));

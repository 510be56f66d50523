//! Tokens as the attribute and as the item under it.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| distlock_fuzz::attribute(text));

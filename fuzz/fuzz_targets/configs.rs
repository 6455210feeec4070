//! Feeds bytes to the checks of configs.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| jitney_store::fuzzing::configs(bytes));

//! Feeds bytes to the checks of archives.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| jitney_store::fuzzing::archives(bytes));

//! Feeds bytes to the checks of JPEG files.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| jitney_jpeg::fuzzing::jpegs(bytes));

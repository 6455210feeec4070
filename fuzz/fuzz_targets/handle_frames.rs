//! Feeds bytes to the checks of handle frames.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| jitney_server::fuzzing::handle_frames(bytes));

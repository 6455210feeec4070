//! Feeds bytes to the checks of worker frames.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| jitney_engine::frames::fuzzing::worker_frames(bytes));

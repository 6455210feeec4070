//! Feeds bytes to the checks of the sizes of requests.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| jitney_engine::sizes::fuzzing::request_sizes(bytes));

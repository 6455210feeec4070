//! Feeds bytes to the checks of plain requests.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| jitney_server::fuzzing::plain_requests(bytes));

//! Feeds bytes to the checks of plain requests.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| jitney_net::http::plain_requests(bytes));

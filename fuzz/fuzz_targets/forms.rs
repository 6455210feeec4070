//! Feeds bytes to the checks of forms.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| jitney_server::fuzzing::forms(bytes));

//! Feeds bytes to the checks of documents.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| jitney_store::fuzzing::documents(bytes));

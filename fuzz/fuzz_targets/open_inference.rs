//! Feeds bytes to the checks of bodies of the Open Inference Protocol.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| jitney_server::fuzzing::open_inference_bodies(bytes));

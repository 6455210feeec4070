//! Feeds bytes to the checks of bodies.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| jitney_onnx::fuzzing::bodies(bytes));

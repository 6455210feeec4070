//! Feeds bytes to the checks of onnx files.

#![no_main]

// The loader's own panics are caught by the server, so they are no finds; libfuzzer's hook would end here.
libfuzzer_sys::fuzz_target!(
    init: std::panic::set_hook(Box::new(|_| {})),
    |bytes: &[u8]| jitney_onnx::fuzzing::onnx_files(bytes)
);

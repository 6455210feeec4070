//! Feeds texts to the checks of `keys.yaml`.

#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| jitney_server::fuzzing::keys_yaml(text));

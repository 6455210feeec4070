//! Feeds texts to the checks of `jitney.yaml`.

#![no_main]

#[allow(dead_code)]
#[path = "../../crates/cli/src/failure.rs"]
mod failure;
#[allow(dead_code)]
#[path = "../../crates/cli/src/serve/file.rs"]
mod file;

mod plan {
    use std::collections::BTreeMap;

    use jitney_engine::store::Sha256;
    use jitney_settings::Values;

    /// As the server's, with what a file says.
    #[derive(Clone, Debug, Default, PartialEq)]
    pub struct Startup {
        pub name: Option<String>,
        pub url: String,
        pub version: Option<String>,
        pub handler: Option<String>,
        pub settings: Values,
        pub sha256: Option<Sha256>,
        pub parts: BTreeMap<String, Values>,
    }
}

libfuzzer_sys::fuzz_target!(|text: &str| file::fuzzing::check(text));

//! `config.properties`: what is read can be written to a snapshot and read again as it was.

#![no_main]

#[allow(dead_code)]
#[path = "../../crates/cli/src/snapshot/escape.rs"]
mod escape;
#[allow(dead_code)]
#[path = "../../crates/cli/src/failure.rs"]
mod failure;
#[allow(dead_code)]
#[path = "../../crates/cli/src/torchserve/properties.rs"]
mod properties;

mod env {
    /// As the server's, with one variable.
    pub struct Env;

    impl Env {
        pub fn text(&self, name: &str) -> Option<&str> {
            (name == "HOME").then_some("/home/user")
        }
    }
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(read) = properties::parse(bytes, &env::Env) else { return };
    let mut text = String::new();
    // A snapshot writes what is in force, so variables are no part of it.
    let kept: Vec<_> = read.iter().filter(|one| !one.value.contains("$$")).collect();
    for one in &kept {
        assert_eq!(one.value.trim(), one.value);
        escape::line(&mut text, &one.key, &one.value);
    }
    let again = properties::parse(text.as_bytes(), &env::Env).expect("what was written is read");
    assert_eq!(again.len(), kept.len(), "{text}");
    for (one, other) in kept.into_iter().zip(&again) {
        assert_eq!((&one.key, &one.value), (&other.key, &other.value), "{text}");
    }
});

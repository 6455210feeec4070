//! What must hold for every `jitney.yaml`. `fuzz/` looks for one for which it does not; the tests try those of
//! `fuzz/corpus` again.

use std::path::Path;

use super::{list, parse};

/// A file ends in settings or in a mistake that names the file, and a list of models reads the same alone.
pub fn check(text: &str) {
    let path = Path::new("jitney.yaml");
    let read = parse(text, path);
    if let Err(failure) = &read {
        assert!(failure.message.starts_with("jitney.yaml"), "{}", failure.message);
    }
    let Ok(models) = list(text, path) else { return };
    let whole = read.expect("a list is a file").models;
    assert_eq!(whole, models);
    assert!(models.iter().all(|model| !model.url.is_empty()));
}

#[cfg(test)]
#[test]
fn the_corpus_holds() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/jitney_yaml");
    for file in std::fs::read_dir(corpus).expect("a corpus") {
        let text = std::fs::read_to_string(file.expect("a file").path()).expect("reads");
        check(&text);
    }
}

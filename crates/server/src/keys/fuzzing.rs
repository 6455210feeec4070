//! What must hold for every `keys.yaml`. `fuzz/` looks for one for which it does not; the tests try those of
//! `fuzz/corpus` again.

use jitney_engine::admission::AdmissionLimits;
use tokio::time::Instant;

use super::{NamedKeys, read};

/// What stands for a secret in the wrong place.
const SECRET: &str = "SECRET";

/// A file ends in keys that can be used, or in a mistake that shows no value of the file; and it changes keys only if
/// it was read.
pub fn keys_yaml(text: &str) {
    let keys = NamedKeys::new("", AdmissionLimits::default(), jitney_net::Networks::default());
    let keys = keys.expect("a file without keys");
    let given = keys.give(text);
    let rows = match read(text) {
        Ok(rows) => rows,
        Err(error) => {
            // The name of a field is no value.
            assert!(!error.contains(SECRET) || error.contains("unknown field"), "{error}");
            assert!(!error.is_empty() && given.is_err() && keys.list.load().is_empty());
            return;
        }
    };
    assert!(given.is_ok() && keys.list.load().len() == rows.len());
    let now = Instant::now();
    for row in rows {
        assert!(row.scopes.iter().all(|scope| scope.to_string().parse().as_ref() == Ok(scope)));
        let terms = keys.find(&row.sha256).expect("a key").terms(now);
        let used = terms.map(|terms| terms.quota.admit(now, 1, 1).map(drop));
        assert!(used.is_none_or(|used| used.is_ok()), "a first request of one item");
    }
}

#[cfg(test)]
#[test]
fn the_corpus_holds() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/keys_yaml");
    for file in std::fs::read_dir(corpus).unwrap() {
        keys_yaml(&std::fs::read_to_string(file.unwrap().path()).unwrap());
    }
}

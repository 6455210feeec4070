//! What a model says about its own API: `jitney-api.json`, which definitions in Python bring.
//!
//! The server repeats it to clients; the engine only keeps requests of different endpoints out of
//! each other's batches. A document that cannot be read costs the description, not the model.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::package::read_text;

/// The file in the model's directory.
const FILE: &str = "jitney-api.json";

/// A model's own description.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Api {
    /// The endpoints, by the name that follows the model's in a path.
    pub endpoints: Vec<String>,
    /// Most items in a call of those that take batches.
    pub batch_sizes: BTreeMap<String, u32>,
    /// The latencies to keep, where not all endpoints have the same.
    pub latencies_ms: BTreeMap<String, f64>,
    /// OpenAPI path items by path.
    pub paths: Map<String, Value>,
}

impl Api {
    /// Reads the description, if the model has one.
    pub(super) fn read(dir: &Path) -> Option<Self> {
        let text = read_text(&dir.join(FILE)).ok()?;
        let read = serde_json::from_str(&text);
        read.inspect_err(|error| tracing::warn!(%error, "{FILE} is no API description, ignored"))
            .ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_read_and_a_broken_one_ignored() {
        let dir = tempfile::tempdir().expect("directory");
        assert_eq!(Api::read(dir.path()), None);
        let file = dir.path().join(FILE);
        std::fs::write(&file, r#"{"endpoints": ["a"], "paths": {"/m": {}}}"#).expect("file");
        let api = Api::read(dir.path()).expect("reads");
        assert_eq!((api.endpoints, api.paths.len()), (vec!["a".to_owned()], 1));
        std::fs::write(&file, "{").expect("file");
        assert_eq!(Api::read(dir.path()), None);
    }
}

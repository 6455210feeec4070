//! YAML documents as Python reads them.
//!
//! A document that is no YAML is an error: guessing what it meant would serve a model with settings
//! that nobody chose.

use serde_json::{Map, Value};
use serde_saphyr::options::{DuplicateKeyPolicy, NonFiniteFloatPolicy};

use super::error::StoreError;

/// Reads a document as PyYAML would: `yes` is a flag, `010` is eight, of two equal keys the later
/// one counts. An empty document is an empty mapping.
pub fn parse(text: &str) -> Result<Map<String, Value>, StoreError> {
    let options = serde_saphyr::options! {
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        non_finite_float_policy: NonFiniteFloatPolicy::AsString,
        legacy_octal_numbers: true,
        emit_comments: false,
        with_snippet: false,
    };
    match serde_saphyr::from_str_with_options(text, options) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(Value::Null) => Ok(Map::new()),
        Ok(_) => Err(StoreError::InvalidConfig { why: "it is not a mapping".to_owned() }),
        Err(error) => Err(StoreError::InvalidConfig { why: error.to_string() }),
    }
}

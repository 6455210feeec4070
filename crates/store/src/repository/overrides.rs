//! What clients may change of a model's configuration when they load it, where the operator allows that: sizes, delays
//! and counts. Nothing that names code, a file or another model.

use jitney_settings::Values;
use serde_json::{Map, Value};

use super::text_format::{PbField, PbValue};
use super::triton;

/// What may be set.
const KEYS: [&str; 3] = ["max_batch_size", "dynamic_batching", "instance_group"];

/// How the source of such settings is shown.
const SHOWN: &str = "the client that loaded it";

/// The settings of a configuration in JSON.
///
/// # Errors
/// A sentence about what is wrong with it, or may not be set.
pub fn config_overrides(json: &str) -> Result<Values, String> {
    let Ok(Value::Object(object)) = serde_json::from_str(json) else {
        return Err("the configuration is no JSON object".to_owned());
    };
    if let Some(other) = object.keys().find(|key| !KEYS.contains(&key.as_str())) {
        let known = KEYS.join(", ");
        return Err(format!("{other:?} is not taken from clients; they may set {known}"));
    }
    let config = triton::read_fields(fields(&object), "", SHOWN).map_err(|error| error.why)?;
    Ok(config.settings)
}

/// The object as a file would say it: numbers may be texts.
fn fields(object: &Map<String, Value>) -> Vec<PbField> {
    let field = |(name, value): (&String, &Value)| -> Vec<PbField> {
        let one = |value: &Value| {
            let value = match value {
                Value::Object(inner) => PbValue::Message(fields(inner)),
                Value::String(text) => PbValue::Word(text.clone()),
                other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_)) => {
                    PbValue::Word(other.to_string())
                }
            };
            PbField { name: name.clone(), line: 1, value }
        };
        match value.as_array() {
            Some(values) => values.iter().map(one).collect(),
            None => vec![one(value)],
        }
    };
    object.iter().flat_map(field).collect()
}

#[cfg(test)]
mod tests {
    use jitney_settings::model::{MAX_BATCH_DELAY, MAX_BATCH_SIZE, WORKERS};

    use super::*;

    #[test]
    fn a_client_may_set_sizes_and_counts_and_nothing_else() {
        let values = config_overrides(
            r#"{"max_batch_size": "16", "instance_group": [{"count": 2, "kind": "KIND_CPU"}],
                "dynamic_batching": {"max_queue_delay_microseconds": 2000}}"#,
        )
        .expect("a configuration");
        for (setting, value) in [(&MAX_BATCH_SIZE, "16"), (&WORKERS, "2")] {
            assert_eq!(values.show(setting).as_deref(), Some(value));
        }
        assert!(values.has(&MAX_BATCH_DELAY));
        for (json, why) in [
            ("{{", "no JSON object"),
            ("[]", "no JSON object"),
            (r#"{"default_model_filename": "x.py"}"#, "is not taken from clients"),
            (r#"{"backend": "python"}"#, "is not taken from clients"),
            (r#"{"parameters": {}}"#, "is not taken from clients"),
            (r#"{"max_batch_size": "many"}"#, "no number that fits"),
            (r#"{"dynamic_batching": 3}"#, "takes fields in braces"),
        ] {
            let error = config_overrides(json).expect_err(json);
            assert!(error.contains(why), "{json}: {error}");
        }
    }
}

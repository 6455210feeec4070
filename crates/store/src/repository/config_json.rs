//! A configuration as the JSON that a model of the Python backend reads about itself.

use serde_json::{Map, Value};

use super::text_format::{PbField, PbValue};

/// Fields of which there may be several.
const LISTS: &[&str] = &[
    "input",
    "output",
    "dims",
    "shape",
    "instance_group",
    "gpus",
    "preferred_batch_size",
    "versions",
    "control_input",
    "control",
    "int32_false_true",
    "fp32_false_true",
    "bool_false_true",
    "state",
    "step",
    "batch_input",
    "batch_output",
    "model_warmup",
];
/// Fields of keys and values.
const MAPS: &[&str] =
    &["parameters", "input_map", "output_map", "metric_tags", "cc_model_filenames"];

/// The fields as an object.
pub(super) fn object(fields: &[PbField]) -> Map<String, Value> {
    let mut object = Map::new();
    for field in fields {
        let name = field.name.as_str();
        if LISTS.contains(&name) {
            let list = object.entry(name).or_insert_with(|| Value::Array(Vec::new()));
            list.as_array_mut().into_iter().for_each(|list| list.push(value(field)));
        } else if let (true, PbValue::Message(entry)) = (MAPS.contains(&name), &field.value) {
            let map = object.entry(name).or_insert_with(|| Value::Object(Map::new()));
            let mut entry = self::object(entry);
            let (key, value) = (entry.remove("key"), entry.remove("value"));
            if let (Some(map), Some(Value::String(key))) = (map.as_object_mut(), key) {
                map.insert(key, value.unwrap_or_default());
            }
        } else {
            object.insert(name.to_owned(), value(field));
        }
    }
    object
}

fn value(field: &PbField) -> Value {
    match &field.value {
        PbValue::Message(fields) => Value::Object(object(fields)),
        PbValue::Text(text) => text.as_str().into(),
        PbValue::Word(word) => match word.as_str() {
            "true" | "True" | "t" => true.into(),
            "false" | "False" | "f" => false.into(),
            word => match (word.parse::<i64>(), word.parse::<f64>()) {
                (Ok(number), _) => number.into(),
                (Err(_), Ok(number)) => number.into(),
                (Err(_), Err(_)) => word.into(),
            },
        },
    }
}

//! What models answered, as the list of predictions that KServe's clients read.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use jitney_engine::call::{Answer, Output};
use serde_json::json;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// One answer for each instance.
pub(super) fn of_each(key: &str, answers: &[Answer]) -> Vec<u8> {
    let all: Vec<_> = answers.iter().map(|answer| prediction(&answer.output)).collect();
    list(key, all.iter().map(|one| one.as_ref()))
}

/// One answer for all instances: a list, or lists by output name, of which each instance gets its own
/// values. What is neither stays as it is.
pub(super) fn of_rows(key: &str, body: &Bytes, count: usize) -> Vec<u8> {
    let outputs: Option<BTreeMap<Cow<'_, str>, Vec<&RawValue>>> = serde_json::from_slice(body).ok();
    let outputs = outputs.filter(|outputs| outputs.values().all(|rows| rows.len() == count));
    let Some(outputs) = outputs else {
        let body = String::from_utf8_lossy(body);
        return list_text(key, &body);
    };
    let row = |at: usize| {
        let fields = outputs.iter().map(|(name, rows)| (name, rows[at]));
        let row: BTreeMap<_, _> = fields.collect();
        serde_json::to_string(&row).unwrap_or_default()
    };
    let rows: Vec<_> = (0..count).map(row).collect();
    list(key, rows.iter().map(String::as_str))
}

fn list<'a>(key: &str, values: impl Iterator<Item = &'a str>) -> Vec<u8> {
    let values: Vec<_> = values.collect();
    list_text(key, &format!("[{}]", values.join(",")))
}

fn list_text(key: &str, values: &str) -> Vec<u8> {
    format!("{{\"{key}\":{values}}}").into_bytes()
}

/// JSON as it is, text as a string, other bytes in base64. What the handler calls text is text, even
/// if it could be read as JSON.
fn prediction(output: &Output) -> Cow<'_, str> {
    let is_type = |(name, _): &&(String, String)| name.eq_ignore_ascii_case("content-type");
    let content_type = output.headers.iter().find(is_type).map(|(_, value)| value.as_str());
    let is_text = content_type.is_some_and(|value| value.starts_with("text/"));
    match std::str::from_utf8(&output.body) {
        Ok(text) if !is_text && serde_json::from_str::<&RawValue>(text).is_ok() => text.into(),
        Ok(text) => json!(text).to_string().into(),
        Err(_) => json!({ "b64": STANDARD.encode(&output.body) }).to_string().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(written: Vec<u8>) -> String {
        String::from_utf8(written).unwrap()
    }

    #[test]
    fn an_answer_is_json_text_or_bytes() {
        let output = |body: &'static [u8], content_type: Option<&str>| {
            let header = |value: &str| ("Content-Type".to_owned(), value.to_owned());
            let headers = content_type.map(header).into_iter().collect();
            Output { headers, body: Bytes::from_static(body), ..Output::default() }
        };
        let found = [
            output(b"[1, 2]\n", None),
            output(b"12", Some("text/plain; charset=utf-8")),
            output(b"HELLO", None),
            output(b"\xff", None),
        ];
        let found = found.each_ref().map(|output| prediction(output).into_owned());
        assert_eq!(found, ["[1, 2]\n", "\"12\"", "\"HELLO\"", r#"{"b64":"/w=="}"#]);
    }

    #[test]
    fn each_instance_gets_its_values_of_every_output() {
        let rows = |body: &'static str, count| {
            text(of_rows("predictions", &Bytes::from_static(body.as_bytes()), count))
        };
        assert_eq!(rows("[[1],[2]]", 2), r#"{"predictions":[[1],[2]]}"#);
        let two = r#"{"a": [1, 2], "b": ["x", "y"]}"#;
        assert_eq!(rows(two, 2), r#"{"predictions":[{"a":1,"b":"x"},{"a":2,"b":"y"}]}"#);
        let total = r#"{"predictions":{"a": [1, 2], "total": [3]}}"#;
        assert_eq!(rows(r#"{"a": [1, 2], "total": [3]}"#, 2), total);
    }
}

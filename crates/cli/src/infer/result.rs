//! The result of a row, and how a model's answer becomes one line of JSON: JSON stays as it is, digit
//! for digit, text becomes a JSON string, other bytes become `{"base64": "…"}`.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::value::RawValue;

/// The result of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowResult {
    /// The answer, as JSON on one line.
    Answered(String),
    /// The row failed; the job goes on.
    Failed(RowError),
}

/// Why a row failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowError {
    /// The HTTP status that a client would have received.
    pub status: u16,
    /// The error message.
    pub message: String,
}

impl RowResult {
    /// The response of a model: an answer, or an error that the model itself returned.
    pub fn of(status: u16, content_type: &str, body: &[u8]) -> Self {
        if status < 400 {
            return Self::Answered(json(content_type, body));
        }
        Self::Failed(RowError { status, message: String::from_utf8_lossy(body).into_owned() })
    }

    /// A row that was never sent.
    pub fn bad_input(reason: &str) -> Self {
        Self::Failed(RowError { status: 400, message: reason.to_owned() })
    }
}

/// A body as JSON on one line.
fn json(content_type: &str, body: &[u8]) -> String {
    let is_text = content_type.starts_with("text/");
    match std::str::from_utf8(body) {
        Ok(text) if !is_text && serde_json::from_str::<&RawValue>(text).is_ok() => one_line(text),
        Ok(text) => serde_json::Value::from(text).to_string(),
        Err(_) => format!(r#"{{"base64":"{}"}}"#, STANDARD.encode(body)),
    }
}

/// JSON has no line breaks inside its strings, so each of them is white space.
fn one_line(text: &str) -> String {
    let text = text.trim();
    match text.contains(['\n', '\r']) {
        false => text.to_owned(),
        true => text.replace(['\n', '\r'], " "),
    }
}

/// The text of a CSV cell: a JSON string without its quotes, any other JSON as it is.
pub fn cell(json: &str) -> Cow<'_, str> {
    match json.starts_with('"').then(|| serde_json::from_str::<String>(json)) {
        Some(Ok(text)) => Cow::Owned(text),
        Some(Err(_)) | None => Cow::Borrowed(json),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_become_one_line_of_json() {
        for (kind, body, expected) in [
            ("application/json", &b"{\"a\": 1.10,\n \"b\": [1]}"[..], "{\"a\": 1.10,  \"b\": [1]}"),
            ("", b"12345678901234567890123", "12345678901234567890123"),
            ("text/plain; charset=utf-8", b"12", "\"12\""),
            ("", b"a cat\n", "\"a cat\\n\""),
            ("application/json", b"NaN", "\"NaN\""),
            ("image/png", b"\xff\x00", r#"{"base64":"/wA="}"#),
            ("", b"", "\"\""),
        ] {
            let result = RowResult::of(200, kind, body);
            assert_eq!(result, RowResult::Answered(expected.to_owned()), "{kind} {body:?}");
        }
    }

    #[test]
    fn an_error_status_is_a_failure() {
        let failed = RowResult::of(422, "text/plain", b"too long");
        assert_eq!(
            failed,
            RowResult::Failed(RowError { status: 422, message: "too long".to_owned() })
        );
    }

    #[test]
    fn a_cell_holds_text_without_quotes() {
        assert_eq!([cell("\"a\\nb\""), cell("[1]"), cell("null")], ["a\nb", "[1]", "null"]);
    }
}

//! The rows of an input, the trait of everything that reads them, and their results. A row that cannot be
//! read is still a row; only that row fails. A model's answer becomes one line of JSON: JSON stays as it
//! is, digit for digit, text becomes a JSON string, other bytes become `{"base64": "…"}`.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::value::RawValue;

use crate::failure::Failure;

/// The most bytes of one row; a longer row fails alone.
pub const ROW_BYTES_MAX: u64 = 64 << 20;

/// Reads the rows of one input in order, from any row on; it holds one row at a time.
pub trait RowSource: Send {
    /// The next row; `None` after the last. A failure ends the job.
    fn next(&mut self) -> Result<Option<InputRow>, Failure>;

    /// From now on cells that are numbers are read as numbers, where the source has cells without types.
    fn read_numbers(&mut self) {}

    /// Whether the next row can be read without waiting.
    fn is_ready(&self) -> bool {
        true
    }
}

/// Where to start reading, as a progress file has it.
#[derive(Clone, Copy, Debug, Default)]
pub struct StartPosition {
    /// The number of rows that are done.
    pub rows: u64,
    /// Where the next row begins, in the source's own unit.
    pub position: u64,
}

/// One row.
#[derive(Clone, Debug)]
pub struct InputRow {
    /// Its number in the input, from 0.
    pub number: u64,
    /// Where the next row begins, in the source's own unit.
    pub next: u64,
    /// Its content.
    pub content: RowContent,
}

/// The content of a row.
#[derive(Clone, Debug)]
pub enum RowContent {
    /// A JSON text on one line.
    Json(Bytes),
    /// A file.
    File {
        /// Its path below the folder.
        name: String,
        /// Derived from the file extension.
        content_type: &'static str,
        /// The content of the file.
        bytes: Bytes,
    },
    /// A row that cannot be sent to a model.
    Invalid {
        /// The row, or its first bytes.
        shown: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl RowContent {
    /// A line that must be JSON.
    pub fn json(line: Bytes) -> Self {
        match serde_json::from_slice::<&RawValue>(&line) {
            Ok(_) => Self::Json(line),
            Err(error) => Self::invalid(&line, format!("the row is not JSON: {error}")),
        }
    }

    /// A row that cannot be read.
    pub fn invalid(row: &[u8], reason: String) -> Self {
        let shown = String::from_utf8_lossy(&row[..row.len().min(1024)]).into_owned();
        Self::Invalid { shown, reason }
    }

    /// A row beyond the limit, of which only the beginning was kept.
    pub fn too_long(begins: &[u8], limit: u64) -> Self {
        let reason = if limit >= 1 << 20 {
            format!("the row is longer than {} MiB", limit >> 20)
        } else {
            format!("the row is longer than {limit} bytes")
        };
        Self::invalid(begins, reason)
    }

    /// Bytes held in memory.
    pub fn len(&self) -> usize {
        match self {
            Self::Json(bytes) | Self::File { bytes, .. } => bytes.len(),
            Self::Invalid { shown, .. } => shown.len(),
        }
    }

    /// The content type and the body of a request for this row, or why it cannot be sent.
    pub fn request(&self) -> Result<(&'static str, Bytes), &str> {
        match self {
            Self::Json(json) => Ok(("application/json", json.clone())),
            Self::File { content_type, bytes, .. } => Ok((content_type, bytes.clone())),
            Self::Invalid { reason, .. } => Err(reason),
        }
    }
}

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
    fn a_line_that_is_not_json_is_invalid() {
        for (text, valid) in [
            ("1", true),
            (r#"{"a": [1, null]}"#, true),
            ("{", false),
            ("1 2", false),
            ("\u{e4}", false),
        ] {
            let content = RowContent::json(Bytes::from(text));
            assert_eq!(matches!(content, RowContent::Json(_)), valid, "{text}");
        }
    }

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

//! The rows of an input, and the trait of everything that reads them. A row that cannot be read is
//! still a row; only that row fails.

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::failure::Failure;

/// The most bytes of one row; a longer row ends the job.
pub const ROW_BYTES_MAX: u64 = 64 << 20;

/// Reads the rows of one input in order, from any row on; it holds one row at a time.
pub trait RowSource: Send {
    /// The next row; `None` after the last. A failure ends the job.
    fn next(&mut self) -> Result<Option<InputRow>, Failure>;

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
}

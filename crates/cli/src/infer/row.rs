//! One row of an input, on its way to the model and back: what it says, where it stood, and where
//! the next one begins. A row that cannot be read is a row too: it fails alone.

use bytes::Bytes;
use serde_json::value::RawValue;

/// Bytes that one row may have; a longer one ends the job, since no memory is kept for it.
pub const ROW_BYTES_MAX: u64 = 64 << 20;

/// A row.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its place in the input, from 0.
    pub number: u64,
    /// Where the next row begins, in the source's own unit.
    pub next: u64,
    /// What it says.
    pub given: Given,
}

/// What a row says.
#[derive(Clone, Debug)]
pub enum Given {
    /// A JSON text on one line.
    Json(Bytes),
    /// A file, by its name below the folder.
    File {
        /// The name.
        name: String,
        /// By the name's ending.
        content_type: &'static str,
        /// What is in it.
        bytes: Bytes,
    },
    /// Nothing that a model could be asked; why not.
    Broken {
        /// The row as far as it can be shown.
        shown: String,
        /// What is wrong with it.
        why: String,
    },
}

impl Row {
    /// What the row holds in memory.
    pub fn bytes(&self) -> usize {
        match &self.given {
            Given::Json(bytes) | Given::File { bytes, .. } => bytes.len(),
            Given::Broken { shown, .. } => shown.len(),
        }
    }
}

impl Given {
    /// A line that must be JSON.
    pub fn json(line: Bytes) -> Self {
        match serde_json::from_slice::<&RawValue>(&line) {
            Ok(_) => Self::Json(line),
            Err(error) => Self::broken(&line, format!("the row is no JSON: {error}")),
        }
    }

    /// A row that cannot be read.
    pub fn broken(row: &[u8], why: String) -> Self {
        let shown = String::from_utf8_lossy(&row[..row.len().min(1024)]).into_owned();
        Self::Broken { shown, why }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_json_is_broken() {
        for (text, sound) in [
            ("1", true),
            (r#"{"a": [1, null]}"#, true),
            ("{", false),
            ("1 2", false),
            ("\u{e4}", false),
        ] {
            let given = Given::json(Bytes::from(text));
            assert_eq!(matches!(given, Given::Json(_)), sound, "{text}");
        }
    }
}

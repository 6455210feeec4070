//! A line of the log as it is kept, and what is found among such lines.

use std::sync::{Arc, OnceLock};

use tracing::Level;

use crate::log_line::LogLine;

/// A line as it is kept. It becomes JSON when somebody asks for it, which is rare: a handler may print
/// millions of lines that nobody reads.
#[derive(Debug)]
pub struct KeptLine {
    pub level: Level,
    line: LogLine,
    json: OnceLock<String>,
}

impl KeptLine {
    pub(super) fn new(level: Level, line: LogLine) -> Self {
        Self { level, line, json: OnceLock::new() }
    }

    /// The model that it is about.
    pub(super) fn model(&self) -> Option<&str> {
        self.line.fields.get("model")?.as_str()
    }

    /// The object on one line.
    pub fn json(&self) -> &str {
        self.json.get_or_init(|| self.line.to_json())
    }

    /// Bytes of its texts.
    pub(super) fn text_bytes(&self) -> usize {
        let texts = self.line.fields.iter();
        let fields = texts.map(|(name, value)| name.len() + value.as_str().map_or(8, str::len));
        self.line.message.len() + fields.sum::<usize>()
    }
}

/// What was found among the lines that are kept.
pub struct FoundLines {
    /// The oldest first.
    pub lines: Vec<Arc<KeptLine>>,
    /// Lines that were too long to be kept.
    pub dropped: u64,
}

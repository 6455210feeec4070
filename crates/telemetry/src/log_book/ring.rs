//! The lines that are kept: the newest ones, bounded in number and in bytes; and which of them a reader wants.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use tracing::Level;

use crate::log_line::LogLine;

/// What a line costs besides its text, and what its JSON adds.
const OVERHEAD: usize = 512;

#[derive(Debug)]
pub(super) struct LineRing {
    lines: VecDeque<Arc<KeptLine>>,
    bytes: usize,
    lines_max: usize,
    bytes_max: usize,
    /// Lines that were too long to be kept.
    pub(super) dropped: u64,
}

impl LineRing {
    pub(super) fn new(lines_max: usize, bytes_max: usize) -> Self {
        Self { lines: VecDeque::new(), bytes: 0, lines_max, bytes_max, dropped: 0 }
    }

    /// Adds a line; the oldest ones make room for it.
    pub(super) fn push(&mut self, line: Arc<KeptLine>) {
        self.bytes += weight(&line);
        self.lines.push_back(line);
        while self.lines.len() > self.lines_max || self.bytes > self.bytes_max {
            let Some(oldest) = self.lines.pop_front() else { return };
            self.bytes -= weight(&oldest);
        }
    }

    /// The last lines that fit, the oldest of them first.
    pub(super) fn last(&self, filter: &LineFilter, most: usize) -> FoundLines {
        let fitting = self.lines.iter().rev().filter(|line| filter.fits(line)).take(most);
        let mut lines: Vec<_> = fitting.map(Arc::clone).collect();
        lines.reverse();
        FoundLines { lines, dropped: self.dropped }
    }
}

fn weight(line: &KeptLine) -> usize {
    line.text_bytes() + OVERHEAD
}

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

/// What a line must be like.
#[derive(Clone, Debug)]
pub struct LineFilter {
    /// It, or worse.
    level: Level,
    model: Option<String>,
    /// Text that is in the line, as JSON writes it, in small letters.
    contains: String,
}

impl Default for LineFilter {
    fn default() -> Self {
        Self { level: Level::TRACE, model: None, contains: String::new() }
    }
}

impl LineFilter {
    /// Lines of this level and above; of one model, and with this text in them, where that is given.
    pub fn new(level: Level, model: Option<String>, contains: Option<&str>) -> Self {
        let quoted = serde_json::to_string(contains.unwrap_or_default()).unwrap_or_default();
        let contains = quoted.trim_start_matches('"').strip_suffix('"').unwrap_or_default();
        Self { level, model, contains: contains.to_lowercase() }
    }

    pub(super) fn fits(&self, line: &KeptLine) -> bool {
        line.level <= self.level
            && self.model.as_deref().is_none_or(|model| line.model() == Some(model))
            && (self.contains.is_empty() || line.json().to_lowercase().contains(&self.contains))
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use tracing::Level;

    use super::*;
    use crate::log_line::LogLine;

    #[test]
    fn the_bytes_are_bounded_too() {
        let mut ring = LineRing::new(100, 10 * (OVERHEAD + 4));
        for number in 1000..1050 {
            let (message, fields) = (number.to_string(), serde_json::Map::new());
            let (time, target) = (SystemTime::UNIX_EPOCH, "test");
            let line = LogLine { time, level: "INFO", target, message, fields };
            ring.push(Arc::new(KeptLine::new(Level::INFO, line)));
        }
        let found = ring.last(&LineFilter::default(), 100).lines;
        assert_eq!(found.len(), 10);
        assert!(found[0].json().contains("\"1040\""));
    }
}

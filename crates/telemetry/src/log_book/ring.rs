//! The lines that are kept: the newest ones, bounded in number and in bytes.

use std::collections::VecDeque;
use std::sync::Arc;

use super::filter::LineFilter;
use super::kept_line::{FoundLines, KeptLine};

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

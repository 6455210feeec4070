//! The lines that are kept: the newest ones, bounded in number and in bytes.

use std::collections::VecDeque;
use std::sync::Arc;

use super::filter::LineFilter;
use super::kept_line::{FoundLines, KeptLine};

/// What a line costs besides its text.
const OVERHEAD: usize = 128;

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
    line.json.len() + OVERHEAD
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn the_bytes_are_bounded_too() {
        let mut ring = LineRing::new(100, 10 * (OVERHEAD + 4));
        for number in 1000..1050 {
            let json = number.to_string();
            ring.push(Arc::new(KeptLine { level: Level::INFO, model: None, json }));
        }
        let found = ring.last(&LineFilter::default(), 100).lines;
        assert_eq!((found.len(), found[0].json.as_str()), (10, "1040"));
    }
}
